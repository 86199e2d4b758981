// key_attention: heavy hitters by accumulated attention alone, without a recent window.
//
// Source: Keyformer section 2.3.1 ("key attention"): h2o with w = 0.
//   k -> budget
// Departures: as h2o. The new token itself may be evicted after its row.
#include "algorithms/accumulated_scores.hpp"
#include "algorithms/budget.hpp"

namespace kvbench {

AlgorithmDescription describe_key_attention() {
  AlgorithmDescription d;
  d.id = "key_attention";
  d.title = "tokens of largest accumulated attention, no recent window";
  d.source = "Keyformer 2.3.1";
  d.parameters = {budget_parameter(), group_parameter()};
  d.needs = [](const Params&) {
    return Needs{.row_logits = true, .held_only = true, .prompt_queries = true};
  };
  d.skip_reason = [](const Params& params, const StreamShape&, Index prompt) {
    return empty_budget(params, prompt);
  };
  d.shared_work = [](const Params&, const StreamShape&, Index, std::uint32_t seed) {
    return std::vector<SharedWork>{prompt_scores(Scoring{}, seed)};
  };
  d.create = [](const Setting& setting) -> std::unique_ptr<Algorithm> {
    return std::make_unique<AccumulatedScores>(setting, Scoring{}, 0);
  };
  return d;
}

}  // namespace kvbench
