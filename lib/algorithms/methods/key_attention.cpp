// key_attention: heavy hitters by accumulated attention alone, without a recent window.
//
// Source: Keyformer section 2.3.1 ("key attention"): h2o with w = 0.
//   k -> budget
// Departures: as h2o. The new token itself may be evicted after its row.
// Compared by `tests/peers/run.sh`: kvpress 0.5.5 (ObservedAttentionPress) keeps the same
// tokens of the prompt once its division by the rows that see a token is taken back.
#include "algorithms/mechanisms/accumulated_scores.hpp"
#include "algorithms/mechanisms/budget.hpp"

namespace kvbench::methods::key_attention {
namespace {

struct Parameters {
  TokenCount budget;
  GroupRule group = GroupRule::kMean;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "key_attention";
  d.title = "tokens of largest accumulated attention, no recent window";
  d.source = "Keyformer 2.3.1";
  d.derived = ranked_subset_keys();
  d.parameters = {budget_field(&Parameters::budget).required(), group_field(&Parameters::group)};
  d.needs = [](const Parameters&) {
    return Needs{.row_logits = true, .kept_tokens_only = true, .prompt_queries = true};
  };
  d.skip_reason = [](const Parameters& p, const StreamShape&, Index prompt) {
    return empty_budget(p.budget, prompt);
  };
  d.shared_work = [](const Parameters&, const StreamShape&, Index, std::uint32_t seed) {
    return std::vector<SharedWork>{PromptScores(Scoring{}, seed)};
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    return std::optional(most_kept_by_score(p.budget, 1, shape, prompt));
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    const RankedSubset kept{.budget = p.budget.of(context.prompt), .group = p.group};
    return std::make_unique<AccumulatedScores>(context, Scoring{}, kept);
  };
  return d;
}

}  // namespace kvbench::methods::key_attention
