#include "kernels/score_sums.hpp"

#include <algorithm>
#include <limits>

#include "core/canonical.hpp"
#include "core/parallel.hpp"
#include "kernels/logit_tile.hpp"

namespace kvbench::cpu {
namespace {

constexpr Index kRowsPerBlock = 64;
constexpr double kNever = -std::numeric_limits<double>::infinity();

// Softmax statistics of each (row, query head): the maximum and 1 / sum exp(x - max).
struct RowStatistics {
  std::vector<double> max_logit;
  std::vector<double> inverse_sum;
};

struct RowRange {
  Index first;
  Index last;
};

// What the rows of one call are asked.
struct Task {
  const Stream& stream;
  const ScoreRule& rule;
  RowRange range;
};

// (x + noise) / temperature over the visible part of a row of logits.
void apply_rule(const ScoreRule& rule, int g, Index row, Index first_token, Index lo, Index hi,
                double* x) {
  if (rule.noise.is_none() && rule.temperature == 1.0) return;
  for (Index j = lo; j < hi; ++j) {
    x[j] = (x[j] + rule.noise.draw(g, row, first_token + j)) / rule.temperature;
  }
}

// Scaled logits of `rows` against one tile, -infinity where a row does not see a token. Tiles begin
// at multiples of kTileTokens whatever the rows, so every sum over tiles has one fixed order.
void masked_logits(const Task& task, const KeyTile& tile, RowRange rows,
                   std::vector<const double*>& queries, std::vector<double>& out) {
  const StreamShape& shape = task.stream.shape;
  queries.clear();
  for (Index i = rows.first; i < rows.last; ++i) {
    for (int g = 0; g < shape.group; ++g) queries.push_back(task.stream.query(g, i));
  }
  out.resize(queries.size() * static_cast<std::size_t>(kTileTokens));
  tile.logits(shape, queries, out.data());
  double* x = out.data();
  for (Index i = rows.first; i < rows.last; ++i) {
    const Index lo = std::clamp<Index>(shape.first_visible(i) - tile.first(), 0, kTileTokens);
    const Index hi = std::clamp<Index>(i + 1 - tile.first(), 0, kTileTokens);
    for (int g = 0; g < shape.group; ++g, x += kTileTokens) {
      apply_rule(task.rule, g, i, tile.first(), std::min(lo, hi), hi, x);
      std::fill(x, x + std::min(lo, hi), kNever);
      std::fill(x + hi, x + kTileTokens, kNever);
    }
  }
}

void block_statistics(const Task& task, RowRange rows, RowStatistics& out) {
  const Stream& stream = task.stream;
  const Index group = stream.shape.group;
  const Index count = (rows.last - rows.first) * group;
  std::vector<double> max_logit(static_cast<std::size_t>(count), kNever);
  std::vector<double> sum(static_cast<std::size_t>(count), 0.0);
  std::vector<const double*> queries;
  std::vector<double> x;
  const Index first_tile = stream.shape.first_visible(rows.first) / kTileTokens * kTileTokens;
  for (Index start = first_tile; start < rows.last; start += kTileTokens) {
    const KeyTile tile(stream.keys, start);
    masked_logits(task, tile, rows, queries, x);
    for (Index q = 0; q < count; ++q) {
      const double* row = x.data() + q * kTileTokens;
      Lanes largest = Lanes::all(kNever);
      for (Index j = 0; j < kTileTokens; j += Lanes::kCount) {
        largest = Lanes::max(largest, Lanes::load(row + j));
      }
      double& m = max_logit[static_cast<std::size_t>(q)];
      double& z = sum[static_cast<std::size_t>(q)];
      const double m_tile = largest.largest();
      if (m_tile == kNever) continue;
      if (m_tile > m) {
        if (m != kNever) z *= canonical_exp(m - m_tile);
        m = m_tile;
      }
      Lanes total = Lanes::all(0.0);
      for (Index j = 0; j < kTileTokens; j += Lanes::kCount) {
        total = total + canonical_exp(Lanes::load(row + j) - Lanes::all(m));
      }
      z += total.sum();
    }
  }
  for (Index q = 0; q < count; ++q) {
    const auto place = static_cast<std::size_t>((rows.first - task.range.first) * group + q);
    out.max_logit[place] = max_logit[static_cast<std::size_t>(q)];
    out.inverse_sum[place] = 1.0 / sum[static_cast<std::size_t>(q)];
  }
}

// Adds the scores of all rows, ascending, to the tokens of one tile.
void accumulate_tile(const Task& task, Index start, const RowStatistics& stats,
                     std::vector<std::vector<double>>& sums) {
  const Stream& stream = task.stream;
  const RowRange range = task.range;
  const Lanes decay = Lanes::all(task.rule.decay);
  const StreamShape& shape = stream.shape;
  const Index group = shape.group;
  const KeyTile tile(stream.keys, start);
  std::vector<double> local(static_cast<std::size_t>(group * kTileTokens), 0.0);
  std::vector<const double*> queries;
  std::vector<double> x;
  Index last_row = range.last;
  if (shape.window > 0) last_row = std::min(last_row, start + kTileTokens - 1 + shape.window);
  for (Index r = std::max(range.first, start); r < last_row; r += kRowsPerBlock) {
    const RowRange rows{r, std::min(r + kRowsPerBlock, last_row)};
    masked_logits(task, tile, rows, queries, x);
    for (std::size_t q = 0; q < queries.size(); ++q) {
      const double* row = x.data() + q * static_cast<std::size_t>(kTileTokens);
      const std::size_t place = static_cast<std::size_t>((r - range.first) * group) + q;
      const Lanes m = Lanes::all(stats.max_logit[place]);
      const Lanes inverse = Lanes::all(task.rule.gain * stats.inverse_sum[place]);
      double* f = local.data() + static_cast<Index>(q) % group * kTileTokens;
      for (Index j = 0; j < kTileTokens; j += Lanes::kCount) {
        const Lanes score = canonical_exp(Lanes::load(row + j) - m) * inverse;
        Lanes::fma(decay, Lanes::load(f + j), score).store(f + j);
      }
    }
  }
  const Index tokens = std::min(kTileTokens, shape.tokens - start);
  for (Index g = 0; g < group; ++g) {
    std::copy_n(local.data() + g * kTileTokens, tokens,
                sums[static_cast<std::size_t>(g)].data() + start);
  }
}

}  // namespace

std::vector<std::vector<double>> score_sums(const Stream& stream, Index first, Index last,
                                            const ScoreRule& rule) {
  const Task task{stream, rule, {first, last}};
  const auto group = static_cast<std::size_t>(stream.shape.group);
  std::vector<std::vector<double>> sums(
      group, std::vector<double>(static_cast<std::size_t>(stream.shape.tokens), 0.0));
  if (last <= first) return sums;

  const std::size_t places = static_cast<std::size_t>(last - first) * group;
  RowStatistics stats{std::vector<double>(places), std::vector<double>(places)};
  const Index blocks = (last - first + kRowsPerBlock - 1) / kRowsPerBlock;
  parallel_for(blocks, [&](Index b) {
    const Index from = last - std::min((b + 1) * kRowsPerBlock, last - first);  // longest first
    block_statistics(task, {from, last - b * kRowsPerBlock}, stats);
  });
  const Index first_tile = stream.shape.first_visible(first) / kTileTokens;
  const Index tiles = (last + kTileTokens - 1) / kTileTokens - first_tile;
  parallel_for(
      tiles, [&](Index t) { accumulate_tile(task, (first_tile + t) * kTileTokens, stats, sums); });
  return sums;
}

}  // namespace kvbench::cpu
