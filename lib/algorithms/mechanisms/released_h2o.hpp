// h2o as its released code masks: nothing is dropped for good.
#pragma once

#include <vector>

#include "algorithms/mechanisms/accumulated_scores.hpp"

namespace kvbench {

// At row i attend to the last w of tokens [0, i] and to the k - w best scores among [0, i - w).
// Token i - w is masked for one row and keeps its score; other masked tokens' scores become 0. They
// may return, so all tokens stay in memory.
class ReleasedH2o final : public Algorithm {
 public:
  ReleasedH2o(const CellContext& context, const RankedSubset& subset);

  void extend(Index first, Index last) override;
  void finish_prompt() override;
  void answered(const RowLogits& row) override;

 private:
  void attend(Index row);

  const CellContext context_;
  StreamShape shape_;
  KeptScores kept_scores_;
  RankedSubset subset_;
  ScoreSums scores_;  // [G][n]
  std::vector<std::int32_t> attended_;
};

}  // namespace kvbench
