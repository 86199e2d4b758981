// h2o: heavy hitters by accumulated attention beside a window of recent tokens.
//
// Source: H2O (Zhang et al.), the baseline of SubGen and Keyformer; `semantics: paper` is
// Keyformer's Algorithm 1 without noise, `semantics: released` the masks of H2O's published code.
//   k -> budget, w = floor(k recent_fraction), f_theta -> scores per query head
// Departures: the new token is answered over k + 1 tokens before one is evicted (a paper's "m = k"
// is read so); scores are kept per query head and combined per KV head when tokens are ranked.
// Noted, not done: attending to k tokens, age-normalised scores, evicting every m-th row only.
#include "algorithms/accumulated_scores.hpp"
#include "algorithms/budget.hpp"
#include "algorithms/positions.hpp"
#include "algorithms/released_h2o.hpp"

namespace kvbench {
namespace {

bool released(const Params& params) { return params.word("semantics") == "released"; }

}  // namespace

AlgorithmDescription describe_h2o() {
  AlgorithmDescription d;
  d.id = "h2o";
  d.title = "tokens of largest accumulated attention, and recent ones";
  d.source = "H2O (Zhang et al.); baseline of SubGen and Keyformer";
  d.parameters = {budget_parameter(), recent_fraction_parameter(0.5), group_parameter(),
                  choice_parameter("semantics", {"paper", "released"},
                                   "paper: evicted tokens never return; released: masked tokens "
                                   "may, as in the published code"),
                  positions_parameter()};
  // As released, masked tokens may return to the sketch.
  d.needs = [](const Params& params) {
    return Needs{.row_logits = true, .held_only = !released(params), .prompt_queries = true};
  };
  d.keeps_everything = released;
  d.skip_reason = [](const Params& params, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(params, prompt)) return reason;
    if (released(params) && recent_window(params, prompt) == 0) {
      return "semantics: released has no meaning without a recent window (the published code then "
             "masks nothing), and recent_fraction leaves 0 tokens";
    }
    return no_rope(params, shape);
  };
  d.shared_work = [](const Params&, const StreamShape&, Index, std::uint32_t seed) {
    return std::vector<SharedWork>{prompt_scores(Scoring{}, seed)};
  };
  d.create = [](const Setting& setting) -> std::unique_ptr<Algorithm> {
    const Index recent = recent_window(setting.params, setting.prompt);
    if (released(setting.params)) return std::make_unique<ReleasedH2o>(setting, recent);
    return std::make_unique<AccumulatedScores>(setting, Scoring{}, recent);
  };
  return d;
}

}  // namespace kvbench
