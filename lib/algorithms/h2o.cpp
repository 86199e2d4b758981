// h2o: heavy hitters by accumulated attention beside a window of recent tokens.
//
// Source: H2O (Zhang et al.), the baseline of SubGen and Keyformer; semantics as Keyformer's
// Algorithm 1 without noise.
//   k -> budget, w = floor(k recent_fraction), f_theta -> scores per query head
// Departures: the new token is answered over k + 1 tokens before one is evicted (a paper's "m = k"
// is read so); scores are kept per query head and combined per KV head when tokens are ranked.
#include <cmath>

#include "algorithms/accumulated_scores.hpp"
#include "algorithms/algorithm.hpp"
#include "algorithms/budget.hpp"
#include "algorithms/positions.hpp"

namespace kvbench {
namespace {

std::unique_ptr<Algorithm> create(const Setting& setting) {
  const Index budget = setting.params.tokens("budget", setting.prompt);
  const double fraction = setting.params.real("recent_fraction");
  const auto recent = static_cast<Index>(std::floor(static_cast<double>(budget) * fraction));
  return std::make_unique<AccumulatedScores>(setting, budget, recent);
}

}  // namespace

AlgorithmDescription describe_h2o() {
  AlgorithmDescription d;
  d.id = "h2o";
  d.title = "tokens of largest accumulated attention, and recent ones";
  d.source = "H2O (Zhang et al.); baseline of SubGen and Keyformer";
  Parameter recent;
  recent.name = "recent_fraction";
  recent.kind = Parameter::Kind::kReal;
  recent.fallback = Value{0.5};
  recent.maximum = 1.0;
  recent.doc = "share of the budget that is the recent window";
  d.parameters = {budget_parameter(), recent, group_parameter(),
                  choice_parameter("semantics", {"paper"}, "paper: evicted tokens never return"),
                  positions_parameter()};
  d.needs = [](const Params&) { return Needs{.row_logits = true, .prompt_queries = true}; };
  d.skip_reason = [](const Params& params, const StreamShape&, Index prompt) {
    return empty_budget(params, prompt);
  };
  d.shared_work = [](const Params&, const StreamShape&, Index) {
    return std::vector<SharedWork>{AccumulatedScores::prompt_scores()};
  };
  d.create = create;
  return d;
}

}  // namespace kvbench
