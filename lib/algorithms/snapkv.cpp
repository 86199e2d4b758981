// snapkv: at the end of the prompt, keep its last `window` tokens and those tokens before them that
// these rows attend to most, after pooling along the sequence.
//
// Source: SnapKV (Li et al.), a baseline of BalanceKV section 4.2.
//   observation window -> window, max_capacity_prompt -> budget, kernel_size -> kernel
// Departures: one selection per KV head (`group` says how its query heads are combined).
#include "algorithms/observation_window.hpp"

namespace kvbench {

AlgorithmDescription describe_snapkv() {
  AlgorithmDescription d;
  d.id = "snapkv";
  d.title = "tokens that the last prompt rows attend to, pooled";
  d.source = "SnapKV (Li et al.); baseline of BalanceKV 4.2";
  d.parameters = observation_window_parameters(32);
  describe_observation_window(d);
  d.create = [](const Setting& setting) -> std::unique_ptr<Algorithm> {
    const Index budget = setting.params.tokens("budget", setting.prompt);
    return std::make_unique<ObservationWindow>(setting, budget - setting.params.integer("window"));
  };
  return d;
}

}  // namespace kvbench
