// snapkv: scores of the last prompt rows against a dense oracle, pooling, and where it cannot run.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/kept_of_prompt.hpp"
#include "support/naive_observation_window.hpp"
#include "support/owned_stream.hpp"
#include "support/weighted_tokens.hpp"

namespace kvbench::test {
namespace snapkv_test {

Given snap(Index budget, Index window, Index kernel, const char* pool = "max") {
  return {{"budget", count_of(budget)},
          {"window", count_of(window)},
          {"kernel", count_of(kernel)},
          {"pool", word_of(pool)}};
}

std::vector<Index> kept(const Stream& stream, Index prompt, const Given& given) {
  return kept_of_prompt("snapkv", stream, prompt, given);
}

TEST_CASE("snapkv, worked: max pooling keeps the neighbours of a peak, avg pooling broad hills") {
  // Ten prompt tokens, window 2: tokens 0..7 are ranked by weight.
  const auto owned = weighted_tokens({1, 1, 90, 1, 1, 40, 60, 45, 1, 1, 1, 1});
  CHECK(kept(owned->stream, 10, snap(5, 2, 1)) == std::vector<Index>{2, 6, 7, 8, 9});
  // Kernel 3, max: pools 1 90 90 90 40 60 60 60: the three of 90.
  CHECK(kept(owned->stream, 10, snap(5, 2, 3)) == std::vector<Index>{1, 2, 3, 8, 9});
  // Among the equal pools of 60 the lowest tokens are kept.
  CHECK(kept(owned->stream, 10, snap(7, 2, 3)) == std::vector<Index>{1, 2, 3, 5, 6, 8, 9});
  // Kernel 3, avg, zeros outside: sums 2 92 92 92 42 101 145 105.
  CHECK(kept(owned->stream, 10, snap(5, 2, 3, "avg")) == std::vector<Index>{5, 6, 7, 8, 9});
}

TEST_CASE("snapkv, worked: padding counts as nothing in max, as zeros in avg") {
  // Tokens 0..3 are ranked; pools of kernel 5 are max 70 70 70 60 (of 0 1 2, 0..3, 0..3, 1 2 3),
  // avg sums 131 191 191 121.
  const auto owned = weighted_tokens({70, 1, 60, 60, 1, 1, 1});
  CHECK(kept(owned->stream, 5, snap(2, 1, 5)) == std::vector<Index>{0, 4});
  CHECK(kept(owned->stream, 5, snap(2, 1, 5, "avg")) == std::vector<Index>{1, 4});
  CHECK(kept(owned->stream, 5, snap(3, 1, 5, "avg")) == std::vector<Index>{1, 2, 4});
  // A kernel wider than all tokens: one pool for all, so the lowest ones.
  CHECK(kept(owned->stream, 5, snap(3, 1, 101)) == std::vector<Index>{0, 1, 4});
  CHECK(kept(owned->stream, 5, snap(3, 1, 101, "avg")) == std::vector<Index>{0, 1, 4});
}

TEST_CASE("snapkv keeps what the dense oracle keeps, for every pool, group rule and stream") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 90, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 90, .d = 64, .dv = 2},
      {.tokens = 90, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 50},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 45}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {40, 89}) {
      for (const Index window : {1, 8, 32}) {
        for (const char* group : {"mean", "max", "sum"}) {
          const std::vector<Real> scores =
              naive_observation_scores(owned->stream, prompt, {.window = window, .group = group});
          for (const Index kernel : {1, 3, 7, 41, 201}) {
            for (const bool average : {false, true}) {
              for (const Index selected : {1, 5}) {
                CAPTURE(spec.window);
                CAPTURE(prompt);
                CAPTURE(window);
                CAPTURE(kernel);
                CAPTURE(average);
                CAPTURE(selected);
                Given given = snap(window + selected, window, kernel, average ? "avg" : "max");
                given.emplace_back("group", word_of(group));
                const std::vector<Real> pooled =
                    naive_pooled(scores, {window, kernel, average, group});
                CHECK(kept(owned->stream, prompt, given) ==
                      naive_observation_kept(owned->stream, prompt, window, pooled, selected));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("variants, worked: the largest row, rows by what they see, pools before heads") {
  // Tokens 0 1 2 are ranked by row 3, which sees four tokens of weights a, and row 4, five of b.
  const auto two_rows = [](const std::vector<double>& a, const std::vector<double>& b) {
    Rows keys;
    for (std::size_t j = 0; j < 6; ++j) keys.push_back({std::log(a[j]), std::log(b[j])});
    const Rows queries = {{0, 0}, {0, 0}, {0, 0}, {1, 0}, {0, 1}, {0, 0}};
    return stream_of(keys, Rows(6, {1.0}), {queries});
  };
  const auto best = [](const Stream& stream, Index window, Index kernel, const char* name,
                       const char* choice) {
    Given given = snap(window + 1, window, kernel);
    given.emplace_back(name, word_of(choice));
    return kept(stream, 5, given).front();
  };
  // Shares 6/13 5/13 1/13 and 1/10 3/10 4/10: sums 0.56 0.68 0.48, largest 0.46 0.38 0.4.
  const auto peaked = two_rows({6, 5, 1, 1, 1, 1}, {1, 3, 4, 1, 1, 1});
  CHECK(best(peaked->stream, 2, 1, "reduce", "sum") == 1);
  CHECK(best(peaked->stream, 2, 1, "reduce", "mean") == 1);
  CHECK(best(peaked->stream, 2, 1, "reduce", "max") == 0);
  // Shares 0.4 0.1 0.1 and 0.1 0.33 0.1: sums 0.5 0.43. Times three and four, the tokens seen
  // before a row's own, 1.6 1.62; times four and five it would be 2.1 2.05.
  const auto later = two_rows({4, 1, 1, 4, 1, 1}, {10, 33, 10, 23, 24, 1});
  CHECK(best(later->stream, 2, 1, "row_weight", "equal") == 0);
  CHECK(best(later->stream, 2, 1, "row_weight", "visible") == 1);
  // Two query heads, 1 8 1 1 and 1 1 1 8 of 12 each: their mean pooled is equal everywhere, the
  // mean of their pools 8 8 8 1 and 1 1 8 8 is largest at token 2.
  Rows keys;
  for (const double a : {1.0, 8.0, 1.0, 1.0, 1.0, 1.0}) keys.push_back({std::log(a), 0});
  keys[3][1] = std::log(8);
  const auto heads = stream_of(keys, Rows(6, {1.0}), {Rows(6, {1, 0}), Rows(6, {0, 1})});
  CHECK(best(heads->stream, 1, 3, "order", "group_then_pool") == 0);
  CHECK(best(heads->stream, 1, 3, "order", "pool_then_group") == 2);
}

TEST_CASE("every variant keeps what the dense oracle keeps") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 70, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 70, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 40, .softcap = 2.0}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const char* reduce : {"sum", "mean", "max"}) {
      for (const bool pools_first : {false, true}) {
        for (const bool weighs : {false, true}) {
          for (const char* group : {"mean", "max"}) {
            for (const Index kernel : {1, 5}) {
              const NaiveObservation rule{8, kernel, false, group, reduce, pools_first, weighs};
              Given given = snap(20, 8, kernel);
              given.emplace_back("group", word_of(group));
              given.emplace_back("reduce", word_of(reduce));
              given.emplace_back("order",
                                 word_of(pools_first ? "pool_then_group" : "group_then_pool"));
              given.emplace_back("row_weight", word_of(weighs ? "visible" : "equal"));
              CAPTURE(reduce);
              CAPTURE(pools_first);
              CAPTURE(weighs);
              CHECK(kept(owned->stream, 60, given) ==
                    naive_observation_kept(owned->stream, 60, 8,
                                           naive_observed(owned->stream, 60, rule), 12));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("rows of a window are weighed and compared block by block as all at once") {
  // Blocks have 2^22 logits: 3 x 1500 x 1400 are two.
  const auto owned = make_stream({.tokens = 1500, .d = 3, .dv = 1, .heads_per_kv = 3});
  const NaiveObservation rule{1400, 1, false, "mean", "max", false, true};
  Given given = snap(1420, 1400, 1);
  given.emplace_back("reduce", word_of("max"));
  given.emplace_back("row_weight", word_of("visible"));
  CHECK(kept(owned->stream, 1450, given) ==
        naive_observation_kept(owned->stream, 1450, 1400, naive_observed(owned->stream, 1450, rule),
                               20));
}

TEST_CASE("a prompt within the budget is kept whole, even where the budget is within the window") {
  const auto owned = make_stream({.tokens = 40, .d = 4, .dv = 2});
  std::vector<Index> all;
  for (Index j = 0; j < 20; ++j) all.push_back(j);
  for (const Index budget : {20, 21, 500}) {
    for (const Index window : {4, 32}) {
      CHECK(kept(owned->stream, 20, snap(budget, window, 7)) == all);
    }
  }
  CHECK(kept(owned->stream, 20, snap(19, 4, 7)).size() == 19);
}

TEST_CASE(
    "snapkv is skipped if a budget leaves nothing beside the window, or queries are missing") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  CHECK(!skip_of("snapkv", shape, 40, snap(8, 8, 7)).empty());
  CHECK(!skip_of("snapkv", shape, 40, snap(7, 8, 7)).empty());
  CHECK(skip_of("snapkv", shape, 40, snap(9, 8, 7)).empty());
  Given given = snap(1, 8, 7);
  given.front().second = number(0.02);  // floor(0.02 * 40) = 0
  CHECK(!skip_of("snapkv", shape, 40, given).empty());
  // Rows [P - window, P) are needed, no more.
  shape.first_query = 32;
  CHECK(skip_of("snapkv", shape, 40, snap(9, 8, 7)).empty());
  shape.first_query = 33;
  CHECK(!skip_of("snapkv", shape, 40, snap(9, 8, 7)).empty());
  CHECK(skip_of("snapkv", shape, 40, snap(40, 8, 7)).empty());
  // Under a sliding window the visible prompt counts: 20 tokens fit into 24.
  shape.first_query = 0;
  shape.window = 21;
  CHECK(skip_of("snapkv", shape, 40, snap(24, 30, 7)).empty());
  CHECK(!skip_of("snapkv", shape, 40, snap(19, 30, 7)).empty());
}

TEST_CASE("an even kernel has no centre and is a fault") {
  const AlgorithmDescription& snapkv = algorithm_named("snapkv");
  CHECK(snapkv.validate(params_for(snapkv, snap(20, 8, 6)))->first == "kernel");
  CHECK(!snapkv.validate(params_for(snapkv, snap(20, 8, 5))));
}

}  // namespace snapkv_test
}  // namespace kvbench::test
