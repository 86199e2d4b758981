// oracle_topk: per row, the tokens of largest attention.
#include <doctest/doctest.h>

#include <cmath>

#include "support/algorithm_named.hpp"
#include "support/naive_rules.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace oracle_topk_test {

KeptSets kept(const Stream& stream, Index prompt, Index budget, const std::string& group) {
  const AlgorithmDescription& algorithm = algorithm_named("oracle_topk");
  return kept_sets(sketches(
      stream, prompt, algorithm,
      params_for(algorithm, {{"budget", Value{std::int64_t{budget}}}, {"group", Value{group}}})));
}

TEST_CASE("worked: two heads of opposite taste over five tokens") {
  // Head 0 weighs tokens 8 1 2 1 4, head 1 weighs them 1 8 4 2 1 (both sum to 16).
  const double w0[] = {8, 1, 2, 1, 4};
  const double w1[] = {1, 8, 4, 2, 1};
  Rows keys;
  for (int j = 0; j < 5; ++j) keys.push_back({std::log(w0[j]), std::log(w1[j])});
  const Rows ones(5, {1.0});
  const auto owned = stream_of(keys, ones, {Rows(5, {1, 0}), Rows(5, {0, 1})});
  // Means 9 9 6 3 5 (/32): the two best are 0 and 1, the third 2. Maxima 8 8 4 2 4 (/16): 0, 1,
  // then 2 before 4 (equal, lower index).
  CHECK(kept(owned->stream, 4, 1, "mean") == KeptSets{{0}});
  CHECK(kept(owned->stream, 4, 3, "mean") == KeptSets{{0, 1, 2}});
  CHECK(kept(owned->stream, 4, 4, "mean") == KeptSets{{0, 1, 2, 4}});
  CHECK(kept(owned->stream, 4, 3, "max") == KeptSets{{0, 1, 2}});
  // Row 3, head sums 12 and 15: means 8/12 + 1/15, 1/12 + 8/15, 2/12 + 4/15, 1/12 + 2/15.
  CHECK(kept(owned->stream, 3, 1, "mean") == KeptSets{{0}, {0}});
  CHECK(kept(owned->stream, 3, 2, "mean") == KeptSets{{0, 1}, {0, 1}});
}

TEST_CASE("agrees with sorting the exact probabilities, ties to the lower token") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 6, .dv = 2, .heads_per_kv = 1},
      {.tokens = 50, .d = 6, .dv = 2, .heads_per_kv = 3, .query_size = 4},
      {.tokens = 50, .d = 6, .dv = 2, .heads_per_kv = 3, .sinks = true},
      {.tokens = 50, .d = 6, .dv = 2, .heads_per_kv = 3, .alibi = true},
      {.tokens = 50, .d = 3, .dv = 2, .heads_per_kv = 2, .window = 13},
      {.tokens = 50, .d = 3, .dv = 2, .heads_per_kv = 1, .kind = StreamKind::kTies},
      {.tokens = 50, .d = 2, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kEqualKeys},
      {.tokens = 50, .d = 3, .dv = 2, .heads_per_kv = 2, .softcap = 1.0, .query_size = 2}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const char* group : {"mean", "max", "sum"}) {
      for (const Index budget : {1, 3, 20, 49, 50, 80}) {
        for (const Index prompt : {0, 25}) {
          CAPTURE(spec.d);
          CAPTURE(budget);
          CAPTURE(std::string(group));
          CHECK(kept(owned->stream, prompt, budget, group) ==
                naive_oracle_topk(owned->stream, prompt, budget, group));
        }
      }
    }
  }
}

}  // namespace oracle_topk_test
}  // namespace kvbench::test
