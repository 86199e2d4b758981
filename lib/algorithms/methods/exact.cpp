// exact: every visible token, weight 1. The reference as an algorithm: its error is rounding.
//
// Source: all papers, softmax attention. No departures.
#include <algorithm>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::exact {
namespace {

class Exact final : public Algorithm {
 public:
  explicit Exact(const CellContext& context) : shape_(context.stream.shape) {}

  void extend(Index first, Index last) override {
    const Index lo = shape_.first_visible(last - 1);
    sketch_.erase(0, std::min(lo - dropped_, sketch_.size()));
    dropped_ = lo;
    sketch_.add_exact(std::max(first, lo), last);
  }

 private:
  StreamShape shape_;
  Index dropped_ = 0;  // tokens [0, dropped_) have left the sliding window
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<NoParameters> d;
  d.id = "exact";
  d.title = "exact attention over every visible token";
  d.source = "no paper; the reference of every error";
  d.for_less_memory = "exact keeps every token; leave it out";
  d.answers_prompt_rows = true;
  d.only_appends = [](const NoParameters&) { return true; };
  d.most_kept = [](const NoParameters&, const StreamShape& shape, Index) {
    return std::optional(exact_tokens(most_visible(shape)));
  };
  d.create = [](const NoParameters&, const CellContext& context) {
    return std::make_unique<Exact>(context);
  };
  return d;
}

}  // namespace kvbench::methods::exact
