// window: the last `budget` tokens, the current one included.
//
// Source: Keyformer Fig. 2b (window attention).
//   k (cache size) -> budget
// No departures.
#include <algorithm>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::window {
namespace {

struct Parameters {
  TokenCount budget;
};

class Window final : public Algorithm {
 public:
  Window(const Parameters& p, const CellContext& context)
      : shape_(context.stream.shape), budget_(p.budget.of(context.prompt)) {}

  void extend(Index first, Index last) override {
    const Index begin = std::max({last - budget_, shape_.first_visible(last - 1), Index{0}});
    sketch_.erase(0, std::min(begin - begin_, sketch_.size()));
    sketch_.add_exact(std::max(first, begin), last);
    begin_ = begin;
  }

 private:
  StreamShape shape_;
  Index budget_;
  Index begin_ = 0;  // oldest token that may be kept
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "window";
  d.title = "the last tokens";
  d.source = "Keyformer Fig. 2b";
  d.answers_prompt_rows = true;
  d.parameters = {budget_field(&Parameters::budget).required()};
  d.skip_reason = [](const Parameters& p, const StreamShape&, Index prompt) {
    return empty_budget(p.budget, prompt);
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    return std::optional(exact_tokens(std::min(p.budget.of(prompt), most_visible(shape))));
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Window>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::window
