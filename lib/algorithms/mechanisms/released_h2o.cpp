#include "algorithms/mechanisms/released_h2o.hpp"

#include <algorithm>

namespace kvbench {

ReleasedH2o::ReleasedH2o(const CellContext& context, const RankedSubset& subset)
    : context_(context),
      shape_(context.stream.shape),
      kept_scores_(context, Scoring{}, subset.positions),
      subset_(subset),
      scores_(shape_.heads_per_kv, std::vector<double>(shape_.tokens, 0.0)) {
  sketch_.cache_positions = subset.positions == Positions::kCache;
}

void ReleasedH2o::finish_prompt() {
  if (context_.prompt == 0) return;
  scores_ = context_.shared.get(PromptScores(Scoring{}, context_.seed));
}

void ReleasedH2o::extend(Index first, Index last) {
  if (last <= context_.prompt) return;
  for (Index row = first; row < last; ++row) attend(row);
}

void ReleasedH2o::attend(Index row) {
  const Index lo = shape_.first_visible(row);
  const Index candidates = std::max(lo, row - subset_.recent);  // [lo, candidates) compete
  std::vector<double> combined(candidates - lo);
  for (std::size_t j = 0; j < combined.size(); ++j) {
    combined[j] =
        combine(subset_.group, shape_.heads_per_kv, [&](int g) { return scores_[g][lo + j]; });
  }
  const std::vector<Index> best = best_tokens(combined, lo, subset_.budget - subset_.recent);
  attended_.assign(best.begin(), best.end());
  for (std::vector<double>& head : scores_) {
    std::size_t next = 0;
    for (Index token = lo; token < candidates; ++token) {
      if (next < best.size() && best[next] == token) {
        ++next;
      } else {
        head[token] = 0.0;
      }
    }
  }
  for (Index token = std::max(lo, row - subset_.recent + 1); token <= row; ++token) {
    attended_.push_back(static_cast<std::int32_t>(token));
  }
  sketch_.clear();
  for (const std::int32_t token : attended_) sketch_.add(SketchRow::exact(token));
  // The scores of every visible token are stored and read, those of masked ones too: they may
  // return.
  const Index score_bits = 8 * kBookkeepingBytes * (row + 1 - lo) * shape_.heads_per_kv;
  sketch_.lookup = {.held_bits = score_bits, .read_bits = score_bits};
}

void ReleasedH2o::answered(const RowLogits& row) {
  std::vector<double> score(attended_.size());
  for (int g = 0; g < row.heads_per_kv; ++g) {
    std::vector<double>& head = scores_[g];
    for (std::size_t p = 0; p < score.size(); ++p) {
      score[p] = head[attended_[p]];
    }
    kept_scores_.add(row, g, attended_, {}, score.data());
    for (std::size_t p = 0; p < score.size(); ++p) {
      head[attended_[p]] = score[p];
    }
  }
}

}  // namespace kvbench
