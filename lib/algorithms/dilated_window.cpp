// dilated_window: tokens i - m (dilation + 1), m = 0 .. budget - 1, at row i. What it skips may be
// attended later, so nothing is dropped for good and memory is that of exact attention.
//
// Source: Keyformer Fig. 2c.
//   k (cache size) -> budget, dilation -> dilation
// No departures.
#include <algorithm>

#include "algorithms/algorithm.hpp"
#include "algorithms/budget.hpp"

namespace kvbench {
namespace {

class DilatedWindow final : public Algorithm {
 public:
  explicit DilatedWindow(const Setting& setting)
      : shape_(setting.stream.shape),
        budget_(setting.params.tokens("budget", setting.prompt)),
        step_(setting.params.integer("dilation") + 1) {}

  void extend(Index, Index last) override {
    const Index row = last - 1;
    const Index reach = (row - shape_.first_visible(row)) / step_;  // most steps back
    sketch_.clear();
    for (Index m = std::min(budget_ - 1, reach); m >= 0; --m) {
      sketch_.add(SketchRow::exact(row - m * step_));
    }
  }

 private:
  StreamShape shape_;
  Index budget_;
  Index step_;
};

}  // namespace

AlgorithmDescription describe_dilated_window() {
  AlgorithmDescription d;
  d.id = "dilated_window";
  d.title = "recent tokens at a fixed stride";
  d.source = "Keyformer Fig. 2c";
  Parameter dilation;
  dilation.name = "dilation";
  dilation.kind = Parameter::Kind::kInteger;
  dilation.fallback = Value{std::int64_t{1}};
  dilation.maximum = 1e9;
  dilation.doc = "tokens left out between two that are attended";
  d.parameters = {budget_parameter(), dilation};
  d.keeps_everything = [](const Params&) { return true; };
  d.skip_reason = [](const Params& params, const StreamShape&, Index prompt) {
    return empty_budget(params, prompt);
  };
  d.create = [](const Setting& setting) { return std::make_unique<DilatedWindow>(setting); };
  return d;
}

}  // namespace kvbench
