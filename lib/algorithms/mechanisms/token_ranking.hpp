// Selection by scores that tokens have of their own, whatever later rows attend to: sinks, the last
// tokens and the best of the others stay.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/mechanisms/compress_once.hpp"

namespace kvbench {

struct RankingParameters {
  TokenCount budget;
  TokenCount sinks = 0;
  TokenCount recent = 0;
};

// budget, sinks, recent.
std::vector<Field<RankingParameters>> ranking_fields();

// The same on a stream.
BudgetParts budget_parts(const RankingParameters& p, Index prompt);

// Tokens that a budget leaves, ascending, with these scores: sinks, the last `recent` of them and
// the best others, of equal scores the lower token. All of them if they fit.
std::vector<Index> within_budget(const std::vector<Index>& held, const BudgetParts& parts,
                                 const std::vector<double>& scores);

// At the end of the prompt, once. Sinks that left a sliding window are not counted: the budget is
// filled with what is visible.
class RankedPrompt final : public CompressOnce {
 public:
  // Higher is better; of equal scores the lower token stays. Asked for the middle of the prompt,
  // one score per token, if not all of it is kept.
  using Scores = std::function<std::vector<double>(PromptRange middle)>;

  RankedPrompt(const CellContext& context, const BudgetParts& parts, Scores scores);

  Derived derived() const override;
  static std::vector<DerivedKey> derived_keys();
  std::vector<double> scores(PromptRange middle) const override { return scores_(middle); }
  Index selected() const override {
    return parts_.budget - (prompt_.visible.size() - prompt_.middle.size());
  }

 protected:
  void compress_middle(PromptRange middle) override;

 private:
  BudgetParts parts_;
  Scores scores_;
  Index kept_ = 0;
};

// Scores of each token by itself.
RankedPrompt::Scores each_scored_by(std::function<double(Index token)> score);

// The same at the end of the prompt and after every row: the row's token is appended, the row is
// answered, then what exceeds the budget is evicted. `recent` are the last tokens of the row.
class RankedStream final : public Algorithm {
 public:
  using Score = std::function<double(Index token)>;

  RankedStream(const CellContext& context, const BudgetParts& parts, Score score);

  void extend(Index first, Index last) override;
  void finish_prompt() override;

 private:
  void add(Index token);
  void drop_invisible(Index row);
  void evict_one();

  const CellContext context_;
  BudgetParts parts_;
  Score score_;
  std::vector<double> scores_;  // scores of the sketch's rows
};

// Functions of AlgorithmDescription for methods that rank once.
std::optional<std::string> cannot_rank(const RankingParameters& p, const StreamShape& shape,
                                       Index prompt);
BudgetParts ranked_parts(const RankingParameters& p, const StreamShape& shape, Index prompt);
std::optional<KeptCounts> most_kept_ranked_once(const RankingParameters& p,
                                                const StreamShape& shape, Index prompt);

// Methods that have the choice between both.
enum class RankingTime { kOnce, kStreaming };

struct TimedRankingParameters : RankingParameters {
  RankingTime semantics = RankingTime::kOnce;

  bool streams() const { return semantics == RankingTime::kStreaming; }
};

Field<TimedRankingParameters> ranking_time_field();  // semantics
std::unique_ptr<Algorithm> ranked(const TimedRankingParameters& p, const CellContext& context,
                                  const RankedStream::Score& score);
std::optional<std::string> cannot_rank_in_time(const TimedRankingParameters& p,
                                               const StreamShape& shape, Index prompt);
std::optional<KeptCounts> most_kept_ranked(const TimedRankingParameters& p,
                                           const StreamShape& shape, Index prompt);

}  // namespace kvbench
