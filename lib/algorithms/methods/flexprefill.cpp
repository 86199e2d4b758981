// flexprefill: holds every token. Each query head reads, in all rows of the prompt, columns and
// diagonals of blocks chosen by its last rows; where averages of blocks predict these rows well, it
// reads the pairs of blocks of the largest averages, too.
//
// Source: FlexPrefill (Lai et al. 2025, 2502.20766); code bytedance/FlexPrefill a24b27b
// (flex_prefill/ops/flex_prefill_attention.py, get_active_blocks).
//   gamma -> coverage; tau -> divergence; min_budget, max_budget -> least, most
//   block_size -> block; last_q -> the last `block` rows of the prompt, whose attention gives
//   columns and diagonals
//   number of columns: 1 + floor(c / 128) blocks, c the tokens that cover gamma; diagonals likewise
//   square root of the Jensen-Shannon divergence of pooled columns and of pooled keys < tau:
//   query-aware, with the least budget of columns and diagonals
// A prompt of at most two blocks, or of the least budget, is read whole. Diagonals are pooled in
// blocks from the farthest one on, as in that code, so that they lie on the grid of blocks only
// where the prompt is a multiple of a block.
// Departures: equal scores rank by place, the lower first. 0 log 0 is 0; that code has NaN there,
// which is not query-aware.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/prompt_mask.hpp"
#include "algorithms/mechanisms/prompt_rows.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::flexprefill {
namespace {

constexpr Index kTokensOfCount = 128;  // whatever the block is

struct Parameters {
  double coverage = 0.9;
  double divergence = 0.1;
  Index least = 512;
  std::optional<Index> most;
  Index block = 128;

  auto operator<=>(const Parameters&) const = default;
};

using Numbers = std::vector<double>;

// Places of `x` by falling value.
std::vector<Index> ranked(const Numbers& x) {
  std::vector<Index> out(x.size());
  std::iota(out.begin(), out.end(), 0);
  std::ranges::stable_sort(out, std::greater<>(), [&](Index i) { return x[i]; });
  return out;
}

// Largest numbers whose sum is at most `share`.
Index covering(const Numbers& x, double share) {
  Index count = 0;
  double sum = 0.0;
  for (const Index i : ranked(x)) {
    sum += x[i];
    if (sum > share) break;
    ++count;
  }
  return count;
}

Numbers pooled(const Numbers& x, Index block) {
  Numbers out((x.size() + block - 1) / block, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) out[i / block] += x[i];
  return out;
}

// Square root of the Jensen-Shannon divergence of two distributions.
double root_divergence(const Numbers& p, const Numbers& q) {
  const auto part = [](double x, double middle) {
    return x > 0.0 ? 0.5 * x * canonical_log(x / middle) : 0.0;
  };
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double middle = (p[i] + q[i]) / 2;
    sum += part(p[i], middle) + part(q[i], middle);
  }
  return std::sqrt(std::max(0.0, sum));
}

struct Mask {
  Parameters p;

  using Result = BlockMask;

  BlockMask compute(const SharedContext& context) const {
    const StreamShape& shape = context.stream.shape;
    const Index prompt = context.prompt;
    BlockMask out(prompt, p.block, shape.heads_per_kv);
    const bool whole = prompt <= std::max(2 * p.block, blocks_of(p.least) * p.block);
    std::vector<Lines> lines;
    Rows keys;
    if (!whole) {
      lines = lines_of(context);
      keys = means(prompt, shape.d, [&](Index token) { return context.stream.keys.row(token); });
    }
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      throw_if_stopped();
      if (whole) {
        out.read_all(g);
      } else {
        choose(context, g, lines[g], keys, out);
      }
    }
    return out;
  }
  auto operator<=>(const Mask&) const = default;

 private:
  using Rows = std::vector<Numbers>;

  // Attention of the last rows, mean over them.
  struct Lines {
    Numbers columns;    // by token
    Numbers diagonals;  // by prompt - 1 - distance
  };

  Index blocks_of(Index tokens) const { return (tokens + p.block - 1) / p.block; }

  std::vector<Lines> lines_of(const SharedContext& context) const {
    const Index prompt = context.prompt;
    const Numbers none(prompt, 0.0);
    std::vector<Lines> out(context.stream.shape.heads_per_kv, {none, none});
    for_each_prompt_row(context, prompt - p.block, [&](const LogitBlock& rows, std::size_t r) {
      const Index row = rows.rows[r];
      for (std::size_t g = 0; g < out.size(); ++g) {
        const double* e = rows.exps.data() + (r * out.size() + g) * rows.tokens;
        const double sum = std::accumulate(e, e + row + 1, 0.0) * p.block;
        if (!std::isfinite(sum)) throw CellError("logits of the prompt overflow");
        for (Index token = 0; token <= row; ++token) {
          out[g].columns[token] += e[token] / sum;
          out[g].diagonals[prompt - 1 - (row - token)] += e[token] / sum;
        }
      }
    });
    return out;
  }

  // Mean vectors of the prompt's blocks.
  template <class RowOf>
  Rows means(Index prompt, Index d, const RowOf& row_of) const {
    Rows out(blocks_of(prompt), Numbers(d, 0.0));
    for (Index row = 0; row < prompt; ++row) {
      Numbers& mean = out[row / p.block];
      const double* x = row_of(row);
      for (Index c = 0; c < d; ++c) mean[c] += x[c];
    }
    for (Index b = 0; b < std::ssize(out); ++b) {
      const double rows = std::min(p.block, prompt - b * p.block);
      for (double& x : out[b]) x /= rows;
    }
    return out;
  }

  // Blocks of columns or diagonals.
  Index budget(const Numbers& line, Index blocks) const {
    const Index wanted = (covering(line, p.coverage) + 1) / kTokensOfCount + 1;
    return std::min(std::max(wanted, blocks_of(p.least)), most(blocks));
  }
  Index most(Index blocks) const { return p.most ? std::min(blocks_of(*p.most), blocks) : blocks; }

  void choose(const SharedContext& context, int g, const Lines& lines, const Rows& keys,
              BlockMask& out) const {
    const Stream& stream = context.stream;
    Index columns = budget(lines.columns, out.blocks);
    Index diagonals = budget(lines.diagonals, out.blocks);
    Numbers of_column = pooled(lines.columns, p.block);
    Numbers of_diagonal = pooled(lines.diagonals, p.block);

    Numbers last(stream.shape.d, 0.0);
    for (Index row = context.prompt - p.block; row < context.prompt; ++row) {
      const double* query = stream.query(g, row);
      for (Index c = 0; c < stream.shape.d; ++c) last[c] += query[c] / p.block;
    }
    Numbers predicted = products(stream, last, keys, out.blocks);
    softmax(predicted.data(), predicted.size());
    const bool query_aware = root_divergence(predicted, of_column) < p.divergence;
    if (query_aware) columns = diagonals = blocks_of(p.least);

    of_column.front() = of_diagonal.back() = std::numeric_limits<double>::infinity();
    const std::vector<Index> by_column = ranked(of_column);
    for (Index k = 0; k < columns; ++k) {
      for (Index rows = by_column[k]; rows < out.blocks; ++rows) out.at(g, rows, by_column[k]) = 1;
    }
    const std::vector<Index> by_diagonal = ranked(of_diagonal);
    for (Index k = 0; k < diagonals; ++k) {
      const Index distance = out.blocks - 1 - by_diagonal[k];
      for (Index rows = distance; rows < out.blocks; ++rows) out.at(g, rows, rows - distance) = 1;
    }
    if (query_aware) read_largest(context, g, keys, out);
  }

  Numbers products(const Stream& stream, const Numbers& query, const Rows& keys,
                   Index blocks) const {
    Numbers out;
    for (Index b = 0; b < blocks; ++b) {
      out.push_back(stream.shape.scale *
                    canonical_dot(query.data(), keys[b].data(), stream.shape.d));
    }
    return out;
  }

  // The pairs of blocks with the largest averages, over all rows together.
  void read_largest(const SharedContext& context, int g, const Rows& keys, BlockMask& out) const {
    const Stream& stream = context.stream;
    const Rows queries =
        means(context.prompt, stream.shape.d, [&](Index row) { return stream.query(g, row); });
    Numbers all(out.blocks * out.blocks, 0.0);
    for (Index rows = 0; rows < out.blocks; ++rows) {
      Numbers shares = products(stream, queries[rows], keys, rows + 1);
      softmax(shares.data(), shares.size());
      std::ranges::copy(shares, all.begin() + rows * out.blocks);
    }
    const std::vector<Index> order = ranked(all);
    const Index pairs = covering(all, p.coverage * out.blocks);
    for (Index k = 0; k < pairs; ++k) {
      const Index rows = order[k] / out.blocks;
      const Index tokens = order[k] % out.blocks;
      if (tokens <= rows) out.at(g, rows, tokens) = 1;
    }
  }
};

Mask mask_of(const Parameters& p) { return {p}; }

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "flexprefill";
  d.title =
      "prompt rows read columns and diagonals of blocks, or the blocks of the largest averages";
  d.source = "FlexPrefill (Lai et al. 2025)";
  d.parameters = {
      field("coverage", &P::coverage, "share of the last rows' attention that is covered")
          .above(0)
          .at_most(1),
      field("divergence", &P::divergence,
            "a query head reads by averages, too, where the square root of a Jensen-Shannon "
            "divergence is below this")
          .at_least(0)
          .at_most(1),
      field("least", &P::least, "tokens of columns, and of diagonals, that are read at least")
          .at_least(1)
          .at_most(1e9),
      field("most", &P::most, "tokens of columns, and of diagonals, that are read at most")
          .at_least(1)
          .at_most(1e9)
          .or_word("all"),
      mask_block_field(&P::block)};
  describe_as_mask<Mask>(d, mask_of);
  return d;
}

}  // namespace kvbench::methods::flexprefill
