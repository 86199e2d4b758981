// Token subsets ranked by accumulated attention scores: the mechanism of h2o and its relatives.
#pragma once

#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/group_rule.hpp"

namespace kvbench {

// Scores f[g][j] start at 0; the prompt adds sum over its rows of softmax(x_i)_j; decode row i adds
// the softmax over the held tokens and then, if more than k tokens are held, evicts the lowest
// combined score among those outside the last `recent`. Evicted tokens never return.
class AccumulatedScores : public Algorithm {
 public:
  // Key of the shared prompt scores, std::vector<std::vector<double>> [G][n].
  static std::string prompt_scores_key();
  static SharedWork prompt_scores();

  AccumulatedScores(const Setting& setting, Index budget, Index recent);

  void extend(Index first, Index last) override;
  void finish_prompt() override;
  void answered(const RowLogits& row) override;

 private:
  void hold(Index token);
  void drop(std::size_t place);
  double combined(std::size_t place) const;

  const Setting setting_;
  StreamShape shape_;
  Index budget_;
  Index recent_;
  GroupRule rule_;
  std::vector<Index> tokens_;                // held, ascending; row p of the sketch is tokens_[p]
  std::vector<std::vector<double>> scores_;  // [G][held]
};

}  // namespace kvbench
