// h2o and key_attention: scores, evictions, and the facts that tie them to other methods.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/given.hpp"
#include "support/naive_rules.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"
#include "support/weighted_tokens.hpp"

namespace kvbench::test {
namespace accumulated_scores_test {

TEST_CASE("h2o, worked: budget 3 of which one recent, prompt of four") {
  // Prompt rows of weights 1, 4, 2, 6: f0 = 1 + 1/5 + 1/7 + 1/13 = 1.420, f1 = 4/5 + 4/7 + 4/13
  // = 1.679, f2 = 2/7 + 2/13 = 0.440, f3 = 6/13 = 0.462. w = floor(3 * 0.5) = 1: keep 3 and the two
  // best of 0..2, which are 1 and 0.
  // Row 4 (weight 2): kept 0 1 3 4, sum 13: f0 1.496, f1 1.987, f3 0.923, f4 0.154. Token 4 is
  // recent; 3 goes.
  // Row 5 (weight 12): kept 0 1 4 5, sum 19: f0 1.549, f1 2.197, f4 0.259. 4 goes.
  // Row 6 (weight 3): kept 0 1 5 6, sum 20: f0 1.599, f1 2.397, f5 = 12/19 + 12/20 = 1.232. 5 goes.
  const auto owned = weighted_tokens({1, 4, 2, 6, 2, 12, 3});
  CHECK(kept_by("h2o", owned->stream, 4, {{"budget", count_of(3)}}) ==
        KeptSets{{0, 1, 3, 4}, {0, 1, 4, 5}, {0, 1, 5, 6}});
}

TEST_CASE("h2o, worked: an old token loses its place to a newer one") {
  // Prompt rows 3, 1: f0 = 1 + 3/4, f1 = 1/4; budget 3, w = 1: both are kept (3 is not exceeded).
  // Row 2 (weight 4): kept 0 1 2, sum 8: f0 2.125, f1 0.375, f2 0.5; three tokens: none goes.
  // Row 3 (weight 8): kept 0 1 2 3, sum 16: f0 2.3125, f1 0.4375, f2 0.75; 1 goes.
  // Row 4 (weight 16): kept 0 2 3 4, sum 31: f0 2.409, f2 0.879, f3 = 8/16 + 8/31 = 0.758; 3 goes.
  // Row 5 (weight 1): kept 0 2 4 5.
  const auto owned = weighted_tokens({3, 1, 4, 8, 16, 1});
  CHECK(kept_by("h2o", owned->stream, 2, {{"budget", count_of(3)}}) ==
        KeptSets{{0, 1, 2}, {0, 1, 2, 3}, {0, 2, 3, 4}, {0, 2, 4, 5}});
}

TEST_CASE("key_attention, worked: the new token itself may go, until it weighs enough") {
  // Prompt of weights 4, 1, 2: f0 2.371, f1 0.343, f2 0.286; budget 2 keeps 0 and 1.
  // Row 3 (1): f1 0.510, f3 1/6: 3 goes.  Row 4 (3): f1 0.635, f4 3/8: 4 goes.
  // Row 5 (8): f1 0.711, f5 8/13 = 0.615: 5 goes.
  // Row 6 (16): f1 0.759, f6 16/21 = 0.762: 1 goes.  Row 7: 0, 6 and the new one.
  const auto owned = weighted_tokens({4, 1, 2, 1, 3, 8, 16, 1});
  CHECK(kept_by("key_attention", owned->stream, 3, {{"budget", count_of(2)}}) ==
        KeptSets{{0, 1, 3}, {0, 1, 4}, {0, 1, 5}, {0, 1, 6}, {0, 6, 7}});
}

TEST_CASE("of equal scores the lower token stays") {
  // Only token 0 is ever attended: every other score is exactly 0.
  const auto owned = stream_of({{0}, {-2000}, {-2000}, {-2000}, {-2000}, {-2000}},
                               {{1}, {1}, {1}, {1}, {1}, {1}}, {{{1}, {1}, {1}, {1}, {1}, {1}}});
  CHECK(kept_by("key_attention", owned->stream, 4, {{"budget", count_of(3)}}) ==
        KeptSets{{0, 1, 2, 4}, {0, 1, 2, 5}});
}

TEST_CASE("scores are combined over query heads by mean, max or sum") {
  // Two heads over three tokens; decode row 3 sees every token alike. Head 0 gives token 0 all,
  // head 1 splits rows between tokens by the values below.
  for (const auto& [group, prompt] : std::vector<std::pair<std::string, Index>>{
           {"mean", 9}, {"max", 9}, {"sum", 9}, {"max", 20}, {"mean", 30}}) {
    for (const int heads : {1, 2, 3, 8}) {
      CAPTURE(group);
      CAPTURE(heads);
      const auto owned =
          make_stream({.tokens = 48, .d = 4, .dv = 2, .heads_per_kv = heads, .query_size = 3});
      for (const Index budget : {1, 2, 7, 12}) {
        CHECK(kept_by("h2o", owned->stream, prompt,
                      {{"budget", count_of(budget)}, {"group", Value{group}}}) ==
              naive_h2o(owned->stream, prompt, budget, 0.5, group));
        CHECK(kept_by("key_attention", owned->stream, prompt,
                      {{"budget", count_of(budget)}, {"group", Value{group}}}) ==
              naive_h2o(owned->stream, prompt, budget, 0.0, group));
      }
    }
  }
}

TEST_CASE("h2o agrees with the token-by-token rule on every stream shape") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 60, .d = 5, .dv = 2},
      {.tokens = 60, .d = 5, .dv = 2, .heads_per_kv = 2, .query_size = 8},
      {.tokens = 60, .d = 4, .dv = 2, .window = 11},
      {.tokens = 60, .d = 4, .dv = 2, .window = 3, .query_size = 4},
      {.tokens = 60, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
      {.tokens = 50, .d = 4, .dv = 2, .kind = StreamKind::kEqualKeys},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 60, .d = 4, .dv = 2, .chunk = 23},
      {.tokens = 50, .d = 4, .dv = 2, .kind = StreamKind::kClustered}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 20, 45}) {
      for (const Index budget : {1, 2, 9, 30, 60}) {
        for (const double recent : {0.0, 0.3, 0.5, 0.9, 1.0}) {
          CAPTURE(spec.window);
          CAPTURE(prompt);
          CAPTURE(budget);
          CAPTURE(recent);
          CHECK(kept_by("h2o", owned->stream, prompt,
                        {{"budget", count_of(budget)}, {"recent_fraction", Value{recent}}}) ==
                naive_h2o(owned->stream, prompt, budget, recent, "mean"));
        }
      }
    }
  }
}

TEST_CASE("released h2o masks, forgets and reopens tokens as the published code does") {
  const std::vector<StreamSpec> specs = {{.tokens = 50, .d = 4, .dv = 2, .query_size = 2},
                                         {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 3},
                                         {.tokens = 50, .d = 4, .dv = 2, .window = 15},
                                         {.tokens = 50, .d = 4, .dv = 2, .sinks = true},
                                         {.tokens = 50, .d = 4, .dv = 2, .alibi = true}};
  bool returned = false;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {1, 20, 45}) {
      for (const Index budget : {2, 6, 12}) {
        for (const double recent : {0.5, 1.0}) {
          CAPTURE(spec.window);
          CAPTURE(prompt);
          CAPTURE(budget);
          CAPTURE(recent);
          const KeptSets sets = kept_by("h2o", owned->stream, prompt,
                                        {{"budget", count_of(budget)},
                                         {"recent_fraction", Value{recent}},
                                         {"semantics", Value{std::string("released")}}});
          CHECK(sets == naive_released_h2o(owned->stream, prompt, budget, recent, "mean"));
          for (std::size_t r = 2; r < sets.size(); ++r) {
            for (const Index token : sets[r]) {
              const auto in = [&](const std::vector<Index>& set) {
                return std::binary_search(set.begin(), set.end(), token);
              };
              returned = returned || (in(sets[r - 2]) && !in(sets[r - 1]));
            }
          }
        }
      }
    }
  }
  CHECK(returned);
}

TEST_CASE("methods that score every row are skipped where prompt queries are missing") {
  const auto owned = make_stream({.tokens = 30, .d = 2, .dv = 2, .first_query = 5});
  for (const char* id : {"h2o", "key_attention"}) {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    const Params params = params_for(algorithm, {{"budget", count_of(4)}});
    CHECK(reason_to_skip(algorithm, params, owned->stream.shape, 20));
  }
  const AlgorithmDescription& window = algorithm_named("window");
  CHECK(!reason_to_skip(window, params_for(window, {{"budget", count_of(4)}}), owned->stream.shape,
                        20));
}

}  // namespace accumulated_scores_test
}  // namespace kvbench::test
