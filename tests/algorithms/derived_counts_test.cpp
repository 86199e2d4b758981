// Methods that compress the prompt once report how many tokens of its middle they hold: the number
// must be that of the sketch, also where the budget covers the whole prompt.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/given.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace derived_counts_test {

constexpr Index kPrompt = 30;

// Tokens of [first, last) kept at the first decode row, and what `derived` calls their number.
struct Counts {
  Index kept = 0;
  double reported = 0.0;
};

Counts counts(const std::string& id, const Stream& stream, const Given& given, const char* name,
              Index first, Index last) {
  const AlgorithmDescription& algorithm = algorithm_named(id);
  Stepper stepper(stream, kPrompt, algorithm, params_for(algorithm, given));
  REQUIRE(stepper.next());
  const std::vector<Index> kept = kept_tokens(stepper.sketch());
  Counts out;
  out.kept = std::count_if(kept.begin(), kept.end(),
                           [&](Index token) { return token >= first && token < last; });
  out.reported = derived_real(stepper.algorithm().derived(), name);
  return out;
}

TEST_CASE("derived.selected of snapkv and pyramidkv is what is held before the window") {
  const auto owned = make_stream({.tokens = 40, .d = 4, .dv = 2, .query_size = 4});
  for (const char* id : {"snapkv", "pyramidkv"}) {
    for (const Index window : {4, 25}) {
      for (const Index budget : {26, 28, 29, 30, 31, 500}) {
        CAPTURE(id);
        CAPTURE(window);
        CAPTURE(budget);
        const Counts found =
            counts(id, owned->stream, {{"budget", count_of(budget)}, {"window", count_of(window)}},
                   "selected", 0, kPrompt - window);
        CHECK(found.reported == static_cast<double>(found.kept));
        if (budget >= kPrompt) CHECK(found.kept == kPrompt - window);
      }
    }
  }
}

TEST_CASE("derived.kept of uniform is what is held between sinks and recent tokens") {
  const auto owned = make_stream({.tokens = 40, .d = 2, .dv = 2});
  for (const bool replacement : {false, true}) {
    for (const Index budget : {5, 6, 20, 29, 30, 31, 500}) {
      CAPTURE(replacement);
      CAPTURE(budget);
      const Counts found = counts("uniform", owned->stream,
                                  {{"budget", count_of(budget)},
                                   {"sinks", count_of(3)},
                                   {"recent", count_of(2)},
                                   {"replacement", Value{replacement}}},
                                  "kept", 3, kPrompt - 2);
      CHECK(found.reported == static_cast<double>(found.kept));
      if (budget >= kPrompt) CHECK(found.kept == kPrompt - 5);
    }
  }
}

}  // namespace derived_counts_test
}  // namespace kvbench::test
