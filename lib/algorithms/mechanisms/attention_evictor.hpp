// Token subsets that lose a token after each answer, by what the row's attention over the kept
// tokens says: the mechanism of caote, roco and d2o.
#pragma once

#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/mechanisms/budget.hpp"

namespace kvbench {

// Appends each decode token, answers over budget + 1 of them, and evicts one. Evicted tokens never
// return. Rows may have keys of their own. `best_of_prompt` says what is kept of the prompt.
class AttentionEvictor : public Algorithm {
 public:
  AttentionEvictor(const CellContext& context, Index budget) : context_(context), budget_(budget) {}

  void extend(Index first, Index last) override;
  void finish_prompt() override;
  void answered(const RowLogits& row) override;

 protected:
  // Tokens of the visible prompt that stay, ascending; it has more than `budget`.
  virtual std::vector<Index> best_of_prompt() = 0;
  // The kept tokens' shares of a row's attention, [G][kept].
  virtual void attended(Index row, const std::vector<std::vector<double>>& shares) = 0;
  // The place of the token that goes after this row, and what is done before it does.
  virtual Index worst(Index row) = 0;
  virtual void before_eviction(Index place) { static_cast<void>(place); }
  // Place `place` of the kept tokens is new (the last one), or gone.
  virtual void kept(Index token) { static_cast<void>(token); }
  virtual void dropped(Index place) { static_cast<void>(place); }

  const CellContext context_;
  const Index budget_;

 private:
  void keep(Index token);
  void drop(Index place);
  double logit(const RowLogits& row, int g, const SketchRow& of) const;

  std::vector<std::vector<double>> shares_;
};

// The most that it keeps, with some numbers besides for each token.
KeptCounts most_kept_by_attention(const TokenCount& budget, Index numbers_per_token,
                                  const StreamShape& shape, Index prompt);

}  // namespace kvbench
