// exact, window, dilated_window, streaming_llm: which tokens are kept at each row.
#include <doctest/doctest.h>

#include "support/given.hpp"
#include "support/naive_rules.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace position_rules_test {

TEST_CASE("worked stream of eight tokens, prompt of five") {
  const auto owned = make_stream({.tokens = 8, .d = 2, .dv = 2});
  const Stream& s = owned->stream;
  CHECK(kept_by("exact", s, 5, {}) ==
        KeptSets{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6, 7}});
  CHECK(kept_by("window", s, 5, {{"budget", count_of(3)}}) ==
        KeptSets{{3, 4, 5}, {4, 5, 6}, {5, 6, 7}});
  // Every second token back from the row, three of them.
  CHECK(kept_by("dilated_window", s, 5, {{"budget", count_of(3)}}) ==
        KeptSets{{1, 3, 5}, {2, 4, 6}, {3, 5, 7}});
  CHECK(kept_by("dilated_window", s, 5, {{"budget", count_of(3)}, {"dilation", count_of(2)}}) ==
        KeptSets{{2, 5}, {0, 3, 6}, {1, 4, 7}});
  CHECK(kept_by("streaming_llm", s, 5, {{"budget", count_of(4)}, {"sinks", count_of(2)}}) ==
        KeptSets{{0, 1, 4, 5}, {0, 1, 5, 6}, {0, 1, 6, 7}});
}

TEST_CASE("worked stream under a sliding window of four") {
  const auto owned = make_stream({.tokens = 8, .d = 2, .dv = 2, .window = 4});
  const Stream& s = owned->stream;
  CHECK(kept_by("exact", s, 5, {}) == KeptSets{{2, 3, 4, 5}, {3, 4, 5, 6}, {4, 5, 6, 7}});
  CHECK(kept_by("window", s, 5, {{"budget", count_of(6)}}) ==
        KeptSets{{2, 3, 4, 5}, {3, 4, 5, 6}, {4, 5, 6, 7}});
  CHECK(kept_by("dilated_window", s, 5, {{"budget", count_of(3)}}) ==
        KeptSets{{3, 5}, {4, 6}, {5, 7}});
  // The sinks 0..2 stay absolute and are gone, except token 2 at row 5.
  CHECK(kept_by("streaming_llm", s, 5, {{"budget", count_of(5)}, {"sinks", count_of(3)}}) ==
        KeptSets{{2, 4, 5}, {5, 6}, {6, 7}});
}

TEST_CASE("a budget given as a part of the prompt is its floor") {
  const auto owned = make_stream({.tokens = 12, .d = 2, .dv = 2});
  // floor(0.4 * 9) = 3
  CHECK(kept_by("window", owned->stream, 9, {{"budget", Value{0.4}}}) ==
        KeptSets{{7, 8, 9}, {8, 9, 10}, {9, 10, 11}});
}

TEST_CASE("position rules agree with their definitions on every stream shape and prompt") {
  for (const Index window : {0, 1, 7, 40, 100}) {
    const auto owned = make_stream({.tokens = 40, .d = 2, .dv = 2, .window = window});
    const Stream& s = owned->stream;
    for (const Index prompt : {0, 1, 13, 39}) {
      for (const Index budget : {1, 2, 5, 13, 40, 1000}) {
        CAPTURE(window);
        CAPTURE(prompt);
        CAPTURE(budget);
        CHECK(kept_by("window", s, prompt, {{"budget", count_of(budget)}}) ==
              naive_window(s, prompt, budget));
        for (const Index dilation : {0, 1, 3, 50}) {
          CHECK(kept_by("dilated_window", s, prompt,
                        {{"budget", count_of(budget)}, {"dilation", count_of(dilation)}}) ==
                naive_dilated_window(s, prompt, budget, dilation));
        }
        for (const Index sinks : {0, 1, 4, 12}) {
          if (budget <= sinks) continue;
          CHECK(kept_by("streaming_llm", s, prompt,
                        {{"budget", count_of(budget)}, {"sinks", count_of(sinks)}}) ==
                naive_streaming(s, prompt, budget, sinks));
        }
      }
    }
  }
}

TEST_CASE("a budget that resolves to nothing, or to no more than the sinks, is skipped") {
  const StreamShape shape = make_stream({.tokens = 20})->stream.shape;
  for (const char* id : {"window", "dilated_window", "streaming_llm", "h2o", "key_attention",
                         "oracle_topk", "kcenter"}) {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    CAPTURE(std::string(id));
    // floor(0.05 * 10) = 0
    CHECK(reason_to_skip(algorithm, params_for(algorithm, {{"budget", Value{0.05}}}), shape, 10));
  }
  const AlgorithmDescription& streaming = algorithm_named("streaming_llm");
  const auto skip = [&](Index budget) {
    return reason_to_skip(
        streaming, params_for(streaming, {{"budget", count_of(budget)}, {"sinks", count_of(4)}}),
        shape, 10);
  };
  CHECK(skip(3));
  CHECK(skip(4));
  CHECK(!skip(5));
}

}  // namespace position_rules_test
}  // namespace kvbench::test
