// dilated_window: tokens i - m (dilation + 1), m = 0 .. budget - 1, at row i. Skipped tokens may be
// attended later, so nothing is dropped for good and memory is that of exact attention.
//
// Source: Keyformer Fig. 2c.
//   k (cache size) -> budget, dilation -> dilation
// No departures.
#include <algorithm>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::dilated_window {
namespace {

struct Parameters {
  TokenCount budget;
  Index dilation = 1;
};

class DilatedWindow final : public Algorithm {
 public:
  DilatedWindow(const Parameters& p, const CellContext& context)
      : shape_(context.stream.shape), budget_(p.budget.of(context.prompt)), step_(p.dilation + 1) {}

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

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "dilated_window";
  d.title = "recent tokens at a fixed stride";
  d.source = "Keyformer Fig. 2c";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.limits.all_tokens = "dilated_window reads tokens up to the row's own";
  d.parameters = {
      budget_field(&Parameters::budget).required(),
      field("dilation", &Parameters::dilation, "tokens left out between two that are attended")
          .at_most(1e9)};
  d.never_evicts = [](const Parameters&) { return true; };
  d.skip_reason = [](const Parameters& p, const StreamShape&, Index prompt) {
    return empty_budget(p.budget, prompt);
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<DilatedWindow>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::dilated_window
