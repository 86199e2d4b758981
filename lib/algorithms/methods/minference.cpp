// minference: holds every token. Each query head reads, in all rows of the prompt, the columns
// (tokens) and diagonals (distances) with most of its last rows' attention.
//
// Source: MInference (Jiang et al. 2024, 2407.02490); code microsoft/MInference fb56c91
// (minference/modules/minference_forward.py, csrc/vertical_slash_index.cu), vertical_and_slash.
//   vertical_size -> vertical; slash_size -> slash; columns and diagonals of infinite score, 30 and
//   100 -> sinks, recent; last_q, BLOCK_SIZE_M and BLOCK_SIZE_N, all 64 -> block
// In rows [r, r + block) a diagonal at distance s is tokens [r - s, r - s + block). They are moved
// up to token 0, or to the end of a farther diagonal's, where they begin before it and end after.
// Its other patterns: stream_llm is streaming_llm with vertical_size sinks and a budget of
// vertical_size + slash_size. block_sparse, 100 blocks by products of averages, is not here: the
// released search writes vertical_and_slash in place of both, and no released file has it. A file's
// numbers per query head are entries with `where` here, one per KV head.
// Departures: equal scores rank by place, the lower column and the smaller distance first. Fewer
// than 30 columns and 50 diagonals can be chosen, which that code raises to these.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/prompt_mask.hpp"
#include "algorithms/mechanisms/prompt_rows.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::minference {
namespace {

struct Parameters {
  Index vertical = 1000;
  Index slash = 6096;
  Index sinks = 30;
  Index recent = 100;
  Index block = 64;

  auto operator<=>(const Parameters&) const = default;
};

struct LineMask final : PromptMask {
  struct Lines {
    std::vector<Index> columns;    // ascending
    std::vector<Index> distances;  // ascending; the first is 0
  };
  Index prompt = 0;
  Index block = 1;
  std::vector<Lines> lines;  // by query head

  std::vector<Index> tokens(int g, Index row) const override {
    const Index first = row / block * block;
    std::vector<Index> out = before(lines[g], first);
    for (Index token = first; token <= row; ++token) out.push_back(token);
    return out;
  }

  Derived derived() const override {
    if (prompt == 0) return {};
    double read = 0.0;  // pairs
    for (const Lines& head : lines) {
      for (Index first = 0; first < prompt; first += block) {
        const Index rows = std::min(block, prompt - first);
        read += rows * std::ssize(before(head, first)) + rows * (rows + 1) / 2;
      }
    }
    return {{"read_pairs", 2.0 * read / (prompt * (prompt + 1)) / lines.size()}};
  }

 private:
  // Tokens before `first` that the block of rows from `first` on reads.
  std::vector<Index> before(const Lines& head, Index first) const {
    std::vector<Index> out;
    auto column = head.columns.begin();
    Index end = 0;  // the end of the diagonals' tokens so far
    for (auto distance = head.distances.rbegin(); distance != head.distances.rend(); ++distance) {
      const Index last = std::max(first + block - *distance, block);
      if (*distance >= first + block || last <= end) continue;
      const Index begin = last > end + block ? last - block : end;
      for (; column != head.columns.end() && *column < begin; ++column) {
        if (*column >= end) out.push_back(*column);
      }
      end = begin + block;
      for (Index token = begin; token < std::min(end, first); ++token) out.push_back(token);
    }
    return out;
  }
};

struct Mask {
  Parameters p;

  using Result = LineMask;

  LineMask compute(const SharedContext& context) const {
    throw_if_stopped();
    const Index prompt = context.prompt;
    const std::vector<double> none(prompt, 0.0);
    const std::size_t heads = context.stream.shape.heads_per_kv;
    std::vector<std::vector<double>> columns(heads, none);
    std::vector<std::vector<double>> diagonals(heads, none);  // by distance
    const Index last = std::max<Index>(0, prompt - p.block);
    for_each_prompt_row(context, last, [&](const LogitBlock& rows, std::size_t r) {
      const Index row = rows.rows[r];
      for (std::size_t g = 0; g < heads; ++g) {
        const double* e = rows.exps.data() + (r * heads + g) * rows.tokens;
        const double sum = std::accumulate(e, e + row + 1, 0.0);
        if (!std::isfinite(sum)) throw CellError("logits of the prompt overflow");
        for (Index token = 0; token <= row; ++token) {
          columns[g][token] += e[token] / sum;
          diagonals[g][row - token] += e[token] / sum;
        }
      }
    });
    LineMask out;
    out.prompt = prompt;
    out.block = p.block;
    for (std::size_t g = 0; g < heads; ++g) {
      out.lines.push_back(
          {best(columns[g], p.sinks, p.vertical), best(diagonals[g], p.recent, p.slash)});
    }
    return out;
  }
  auto operator<=>(const Mask&) const = default;

 private:
  // The `count` places of the highest scores, the first `always` before all others.
  static std::vector<Index> best(std::vector<double>& scores, Index always, Index count) {
    const Index first = std::min(always, std::ssize(scores));
    std::fill_n(scores.begin(), first, std::numeric_limits<double>::infinity());
    return best_tokens(scores, 0, count);
  }
};

Mask mask_of(const Parameters& p) { return {p}; }

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "minference";
  d.title = "prompt rows read the columns and diagonals with most attention of the last rows";
  d.source = "MInference (Jiang et al. 2024)";
  d.parameters = {
      field("vertical", &P::vertical, "tokens that all rows of the prompt read")
          .at_least(0)
          .at_most(1e9),
      field("slash", &P::slash, "distances at which all rows of the prompt read")
          .at_least(1)
          .at_most(1e9),
      field("sinks", &P::sinks, "first tokens, which rank before all others")
          .at_least(0)
          .at_most(1e9),
      field("recent", &P::recent, "least distances, which rank before all others")
          .at_least(1)
          .at_most(1e9),
      field("block", &P::block,
            "rows of a block, and tokens that it reads at a distance; the last rows of the prompt, "
            "as many, rank tokens and distances")
          .at_least(1)
          .at_most(1e6)};
  describe_as_mask<Mask>(d, mask_of);
  d.derived = {{"read_pairs",
                "pairs of a row and a token that are read, as a fraction of those at or below the "
                "diagonal, mean over query heads"}};
  return d;
}

}  // namespace kvbench::methods::minference
