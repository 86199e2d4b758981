#include "algorithms/released_h2o.hpp"

#include <algorithm>

#include "algorithms/positions.hpp"

namespace kvbench {

ReleasedH2o::ReleasedH2o(const Setting& setting, Index recent)
    : setting_(setting),
      shape_(setting.stream.shape),
      held_scores_(setting, Scoring{}),
      budget_(setting.params.tokens("budget", setting.prompt)),
      recent_(recent),
      scores_(static_cast<std::size_t>(shape_.group),
              std::vector<double>(static_cast<std::size_t>(shape_.tokens), 0.0)) {
  sketch_.cache_positions = at_cache_positions(setting.params);
}

void ReleasedH2o::finish_prompt() {
  if (setting_.prompt == 0) return;
  scores_ = setting_.shared.get<PromptScores>(prompt_scores(Scoring{}, setting_.seed).key);
}

void ReleasedH2o::extend(Index first, Index last) {
  if (last <= setting_.prompt) return;
  for (Index row = first; row < last; ++row) attend(row);
}

void ReleasedH2o::attend(Index row) {
  const Index lo = shape_.first_visible(row);
  const Index candidates = std::max(lo, row - recent_);  // [lo, candidates) compete
  const GroupRule rule = group_rule(setting_.params.word("group"));
  std::vector<double> combined(static_cast<std::size_t>(candidates - lo));
  for (std::size_t j = 0; j < combined.size(); ++j) {
    combined[j] = combine(rule, shape_.group, [&](int g) {
      return scores_[static_cast<std::size_t>(g)][static_cast<std::size_t>(lo) + j];
    });
  }
  const std::vector<Index> best = best_tokens(combined, lo, budget_ - recent_);
  attended_.assign(best.begin(), best.end());
  for (std::vector<double>& head : scores_) {
    std::size_t next = 0;
    for (Index token = lo; token < candidates; ++token) {
      if (next < best.size() && best[next] == token) {
        ++next;
      } else {
        head[static_cast<std::size_t>(token)] = 0.0;
      }
    }
  }
  for (Index token = std::max(lo, row - recent_ + 1); token <= row; ++token) {
    attended_.push_back(static_cast<std::int32_t>(token));
  }
  sketch_.clear();
  for (const std::int32_t token : attended_) sketch_.add(SketchRow::exact(token));
}

void ReleasedH2o::answered(const RowLogits& row) {
  std::vector<double> score(attended_.size());
  for (int g = 0; g < row.group; ++g) {
    std::vector<double>& head = scores_[static_cast<std::size_t>(g)];
    for (std::size_t p = 0; p < score.size(); ++p) {
      score[p] = head[static_cast<std::size_t>(attended_[p])];
    }
    held_scores_.add(row, g, attended_, {}, score.data());
    for (std::size_t p = 0; p < score.size(); ++p) {
      head[static_cast<std::size_t>(attended_[p])] = score[p];
    }
  }
}

}  // namespace kvbench
