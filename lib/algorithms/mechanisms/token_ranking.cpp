#include "algorithms/mechanisms/token_ranking.hpp"

#include <algorithm>
#include <utility>

#include "algorithms/mechanisms/group_rule.hpp"

namespace kvbench {

std::vector<Field<RankingParameters>> ranking_fields() {
  using P = RankingParameters;
  return {budget_field(&P::budget).required(), sinks_field(&P::sinks), recent_field(&P::recent)};
}

BudgetParts budget_parts(const RankingParameters& p, Index prompt) {
  return {p.budget.of(prompt), p.sinks.of(prompt), p.recent.of(prompt)};
}

std::vector<Index> within_budget(const std::vector<Index>& held, const BudgetParts& parts,
                                 const std::vector<double>& scores) {
  const Index count = std::ssize(held);
  if (count <= parts.budget) return held;
  Index first = 0;  // held[first], .., held[last - 1] compete
  while (first < count && held[first] < parts.sinks) ++first;
  const Index last = std::max(first, count - parts.recent);
  const std::vector<double> ranked(scores.begin() + first, scores.begin() + last);
  const Index stay = parts.budget - (count - (last - first));
  std::vector<Index> kept(held.begin(), held.begin() + first);
  for (const Index place : best_tokens(ranked, first, stay)) {
    kept.push_back(held[place]);
  }
  kept.insert(kept.end(), held.begin() + last, held.end());
  return kept;
}

RankedPrompt::RankedPrompt(const CellContext& context, const BudgetParts& parts, Scores scores)
    : CompressOnce(context, parts.sinks, parts.recent, parts.budget),
      parts_(parts),
      scores_(std::move(scores)) {}

Derived RankedPrompt::derived() const {
  return {{"middle", prompt_.middle.size()},
          {"kept", keeps_whole_ ? prompt_.middle.size() : kept_}};
}

std::vector<DerivedKey> RankedPrompt::derived_keys() {
  return {middle_key(), kept_of_middle_key()};
}

void RankedPrompt::compress_middle(PromptRange middle) {
  for (const Index token : best_tokens(scores_(middle), middle.first, selected())) {
    sketch_.add(SketchRow::exact(token));
    ++kept_;
  }
}

RankedPrompt::Scores each_scored_by(std::function<double(Index token)> score) {
  return [score = std::move(score)](PromptRange middle) {
    std::vector<double> scores;
    for (Index token = middle.first; token < middle.last; ++token) scores.push_back(score(token));
    return scores;
  };
}

RankedStream::RankedStream(const CellContext& context, const BudgetParts& parts, Score score)
    : context_(context), parts_(parts), score_(std::move(score)) {}

void RankedStream::extend(Index first, Index last) {
  if (last <= context_.prompt) return;
  for (Index token = first; token < last; ++token) {
    if (sketch_.size() > parts_.budget) evict_one();  // the row before is answered
    drop_invisible(token);
    add(token);
  }
}

void RankedStream::finish_prompt() {
  const PromptRange visible = visible_prompt(context_.stream.shape, context_.prompt);
  std::vector<Index> held;
  std::vector<double> scores;
  for (Index token = visible.first; token < visible.last; ++token) {
    held.push_back(token);
    scores.push_back(score_(token));
  }
  for (const Index token : within_budget(held, parts_, scores)) add(token);
}

void RankedStream::add(Index token) {
  sketch_.add(SketchRow::exact(token));
  scores_.push_back(score_(token));
  check_ranked(scores_.back());
}

void RankedStream::drop_invisible(Index row) {
  const Index lo = context_.stream.shape.first_visible(row);
  Index gone = 0;
  while (gone < sketch_.size() && sketch_[gone].token < lo) ++gone;
  sketch_.erase(0, gone);
  scores_.erase(scores_.begin(), scores_.begin() + gone);
}

void RankedStream::evict_one() {
  Index first = 0;  // rows [first, last) compete
  while (sketch_[first].token < parts_.sinks) ++first;
  Index worst = first;
  for (Index row = first; row < sketch_.size() - parts_.recent; ++row) {
    if (scores_[row] <= scores_[worst]) {
      worst = row;
    }
  }
  sketch_.erase(worst);
  scores_.erase(scores_.begin() + worst);
}

std::optional<std::string> cannot_rank(const RankingParameters& p, const StreamShape& shape,
                                       Index prompt) {
  return cannot_compress(p.budget, p.sinks, p.recent.of(prompt), shape, prompt);
}

BudgetParts ranked_parts(const RankingParameters& p, const StreamShape&, Index prompt) {
  return budget_parts(p, prompt);
}

std::optional<KeptCounts> most_kept_ranked_once(const RankingParameters& p,
                                                const StreamShape& shape, Index prompt) {
  return most_kept_once(p.budget.of(prompt), 0, shape, prompt);
}

Field<TimedRankingParameters> ranking_time_field() {
  return field("semantics", &TimedRankingParameters::semantics,
               {{"once", RankingTime::kOnce}, {"streaming", RankingTime::kStreaming}},
               "once: at the end of the prompt; streaming: after every row too");
}

std::unique_ptr<Algorithm> ranked(const TimedRankingParameters& p, const CellContext& context,
                                  const RankedStream::Score& score) {
  const BudgetParts parts = budget_parts(p, context.prompt);
  if (p.streams()) return std::make_unique<RankedStream>(context, parts, score);
  return std::make_unique<RankedPrompt>(context, parts, each_scored_by(score));
}

std::optional<std::string> cannot_rank_in_time(const TimedRankingParameters& p,
                                               const StreamShape& shape, Index prompt) {
  if (!p.streams()) return cannot_rank(p, shape, prompt);
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const BudgetParts parts = budget_parts(p, prompt);
  if (parts.budget >= parts.sinks + parts.recent) return std::nullopt;
  return smaller_budget(parts.budget, parts.sinks, parts.recent);
}

std::optional<KeptCounts> most_kept_ranked(const TimedRankingParameters& p,
                                           const StreamShape& shape, Index prompt) {
  if (!p.streams()) return most_kept_ranked_once(p, shape, prompt);
  return exact_tokens(std::min(p.budget.of(prompt) + 1, most_visible(shape)));
}

}  // namespace kvbench
