// sparse_history: every step-th token and the last `recent` ones.
//
// Source: made up, to add an algorithm the way lib/algorithms/README.md says.
//   step -> step, recent -> recent
// KVBENCH_PLANTED=sparse_history makes it wrong: a token that was let go is kept again.
#include <algorithm>
#include <cstdlib>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::sparse_history {
namespace {

enum class Start { kFirst, kSecond };

struct Parameters {
  Index step = 4;
  TokenCount recent = 3;
  Start start = Start::kFirst;
};

class SparseHistory final : public Algorithm {
 public:
  SparseHistory(const Parameters& p, const CellContext& context)
      : p_(p),
        shape_(context.stream.shape),
        recent_(std::max<Index>(1, p.recent.of(context.prompt))),
        planted_(std::getenv("KVBENCH_PLANTED") != nullptr) {}

  void extend(Index, Index last) override {
    const Index first = p_.start == Start::kFirst ? 0 : 1;
    sketch_.clear();
    for (Index token = shape_.first_visible(last - 1); token < last; ++token) {
      const bool returns = planted_ && token == 1 && last % 8 == 0;
      if (token >= last - recent_ || token % p_.step == first % p_.step || returns) {
        sketch_.add(SketchRow::exact(token));
      }
    }
  }

 private:
  Parameters p_;
  StreamShape shape_;
  Index recent_;
  bool planted_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "sparse_history";
  d.title = "every step-th token and the last ones";
  d.source = "made up";
  d.parameters = {
      field("step", &Parameters::step, "distance of tokens that stay").at_least(1),
      recent_field(&Parameters::recent),
      field("start", &Parameters::start, {{"first", Start::kFirst}, {"second", Start::kSecond}},
            "the oldest token that stays")};
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<SparseHistory>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::sparse_history
