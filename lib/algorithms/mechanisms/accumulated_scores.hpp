// Token subsets ranked by accumulated attention scores: the mechanism of h2o and its relatives.
#pragma once

#include <compare>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/positions.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench {

// How rows score the tokens they attend to: s_i = softmax((x_i + noise) / tau), tau = tau_init in
// the prompt and tau_init + m tau_step at the m-th decode row (m = 1, 2, ..); f = decay f + gain s.
struct Scoring {
  LogitNoise::Kind noise = LogitNoise::Kind::kNone;
  bool fresh_noise = false;  // drawn for every row and token, not once per token
  double tau_init = 1.0;
  double tau_step = 0.0;
  Index gen_len = 0;  // decode rows that tau_step was made for; 0: no schedule
  double decay = 1.0;
  double gain = 1.0;
  Index numbers_per_head = 1;  // stored per kept token and query head (scores, noise)
  Index prompt_rows = 0;       // last rows of the prompt that score; 0: all of them

  LogitNoise noise_on(const Stream& stream, std::uint32_t seed) const;
  // Whether a prompt whose `visible` tokens are to become `budget` has to be scored: not if all of
  // them stay and every row's scores replace those before.
  bool scores_prompt(Index visible, Index budget) const {
    return visible > 0 && (visible > budget || decay != 0.0);
  }
};

// How many tokens stay, resolved on a stream, and how they are ranked and attended to.
struct RankedSubset {
  Index budget = 0;
  Index recent = 0;  // the last ones stay whatever their scores
  GroupRule group = GroupRule::kMean;
  Positions positions = Positions::kOriginal;
};

// Shared work: the prompt's scores [G][n], which serve every budget and recent window. Those of a
// group are computed in one reading of the logits.
struct PromptScores {
  LogitNoise::Kind noise = LogitNoise::Kind::kNone;
  bool fresh_noise = false;
  double tau = 1.0;
  double decay = 1.0;
  double gain = 1.0;
  Index rows = 0;          // Scoring::prompt_rows
  std::uint32_t seed = 0;  // 0 without noise

  PromptScores(const Scoring& scoring, std::uint32_t seed);

  using Result = ScoreSums;
  Result compute(const SharedContext& context) const;
  static std::vector<Result> compute_all(const SharedContext& context,
                                         const std::vector<PromptScores>& pieces);
  static void check(const Result& scores);  // throws CellError if logits overflowed
  auto operator<=>(const PromptScores&) const = default;
};

// budget and recent.
std::vector<DerivedKey> ranked_subset_keys();

// Scores of one query head over the kept tokens at a decode row; `tau` as above.
class KeptScores {
 public:
  KeptScores(const CellContext& context, const Scoring& scoring, Positions positions);

  bool has_token_noise() const { return !noise_.is_none() && !noise_.per_row; }
  double token_noise(int g, Index token) const { return noise_.draw(g, 0, token); }

  // f[p] = decay f[p] + gain score of tokens[p], kept in this order. `token_noise`: of the same
  // tokens, if there is any.
  void add(const RowLogits& row, int g, const std::vector<std::int32_t>& tokens,
           const std::vector<double>& token_noise, double* f);

 private:
  void softmax(std::size_t count, double sink);

  const CellContext context_;
  Scoring scoring_;
  LogitNoise noise_;
  bool cache_positions_;
  std::vector<double> scores_;  // padded to whole lanes
};

// Decode row i adds the scores over the kept tokens and then, if more than `budget` are kept,
// evicts the lowest combined score among those outside the last `recent`. Evicted tokens never
// return.
class AccumulatedScores : public Algorithm {
 public:
  AccumulatedScores(const CellContext& context, const Scoring& scoring, const RankedSubset& subset);

  void extend(Index first, Index last) override;
  void finish_prompt() override;
  void answered(const RowLogits& row) override;
  Derived derived() const override;

 private:
  void keep(Index token);
  void drop(std::size_t place);

  const CellContext context_;
  StreamShape shape_;
  Scoring scoring_;
  KeptScores kept_scores_;
  RankedSubset subset_;
  std::vector<std::int32_t> tokens_;         // kept, ascending; row p of the sketch is tokens_[p]
  std::vector<std::vector<double>> scores_;  // [G][kept]
  std::vector<std::vector<double>> noise_;   // [G][kept], empty if noise is none or per row
  std::vector<double> combined_;
};

// The most that AccumulatedScores keeps: the row's own token is answered before one is evicted.
KeptCounts most_kept_by_score(const TokenCount& budget, Index numbers_per_head,
                              const StreamShape& shape, Index prompt);

// Scores of the query heads at the tokens of `range`, combined.
std::vector<double> combined_scores(const ScoreSums& scores, GroupRule group, PromptRange range);

// The best budget - recent tokens of the prompt outside its last `last`, by combined prompt scores.
std::vector<Index> best_of_prompt(const CellContext& context, const ScoreSums& scores,
                                  const RankedSubset& subset, Index last);

// w = floor(k recent_fraction).
Index recent_window(Index budget, double recent_fraction);

template <class P>
Field<P> recent_fraction_field(double P::* member) {
  return field("recent_fraction", member, "fraction of the budget for the recent window")
      .at_most(1);
}

}  // namespace kvbench
