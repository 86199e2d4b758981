// streaming_llm: the first `sinks` tokens and the last budget - sinks, rolling with the row.
//
// Source: attention sinks (Xiao et al., StreamingLLM), a baseline of all four seed papers.
//   sink tokens -> sinks, cache size -> budget
// `positions: cache` is StreamingLLM's own definition; most other codes, and so the default, attend
// at the positions of the sequence.
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/budget.hpp"
#include "algorithms/positions.hpp"

namespace kvbench {
namespace {

class StreamingLlm final : public Algorithm {
 public:
  explicit StreamingLlm(const Setting& setting)
      : shape_(setting.stream.shape),
        sinks_(setting.params.tokens("sinks", setting.prompt)),
        rolling_(setting.params.tokens("budget", setting.prompt) - sinks_) {
    sketch_.cache_positions = at_cache_positions(setting.params);
  }

  void extend(Index, Index last) override {
    const Index lo = shape_.first_visible(last - 1);
    sketch_.clear();
    sketch_.add_exact(lo, std::min(sinks_, last));
    sketch_.add_exact(std::max({lo, sinks_, last - rolling_}), last);
  }

 private:
  StreamShape shape_;
  Index sinks_;
  Index rolling_;
};

}  // namespace

AlgorithmDescription describe_streaming_llm() {
  AlgorithmDescription d;
  d.id = "streaming_llm";
  d.title = "the first tokens (attention sinks) and the last ones";
  d.source = "StreamingLLM (Xiao et al.); baseline of all four papers";
  d.parameters = {budget_parameter(), sinks_parameter(4), positions_parameter()};
  d.skip_reason = [](const Params& params, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(params, prompt)) return reason;
    if (auto reason = no_rope(params, shape)) return reason;
    const Index budget = params.tokens("budget", prompt);
    const Index sinks = params.tokens("sinks", prompt);
    if (budget > sinks) return std::nullopt;
    return "budget of " + std::to_string(budget) + " tokens leaves no rolling token beside " +
           std::to_string(sinks) + " sinks";
  };
  d.create = [](const Setting& setting) { return std::make_unique<StreamingLlm>(setting); };
  return d;
}

}  // namespace kvbench
