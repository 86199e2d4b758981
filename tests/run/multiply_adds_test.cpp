#include "run/multiply_adds.hpp"

#include <doctest/doctest.h>

#include "sweep/make_plan.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {
namespace multiply_adds_test {

// 100 tokens, 2 KV heads with 3 query heads each, d = dv = 64, the last 10 rows scored.
Plan plan_of(const std::string& algorithms, Index window = 0) {
  const SweepFolder folder;
  PlannedDump dump = planned_dump("a", 100, {0}, 2);
  dump.sequences[0].layers[0].shape.window = window;
  return make_plan(folder.parse(sweep(algorithms, R"("evaluate": {"rows": {"last": 10}})")),
                   {dump});
}

TEST_CASE("pairs of a row and a token that it sees, counted by hand") {
  StreamShape shape;
  shape.tokens = 10;
  CHECK(visible_tokens(shape, {0, 1, 9}) == 1 + 2 + 10);
  shape.window = 4;
  CHECK(visible_tokens(shape, {0, 3, 4, 9}) == 1 + 4 + 4 + 4);
}

TEST_CASE("per head exact attention and logits, per cell one pass over the values") {
  // Rows 90 .. 99 see 91 + .. + 100 = 955 tokens, by 3 query heads.
  const Plan one = plan_of(entry("exact", ""));
  CHECK(multiply_adds(one, one.groups[0]) == 2 * 3 * 955 * (2 * 64 + 64) + 2 * 3 * 955 * 64);
  const Plan two = plan_of(entry("exact", "") + ", " + entry("window", R"("budget": 8)"));
  CHECK(multiply_adds(two, two.groups[0]) == 2 * 3 * 955 * (2 * 64 + 64) + 4 * 3 * 955 * 64);
  const Plan sliding = plan_of(entry("exact", ""), 20);
  CHECK(multiply_adds(sliding, sliding.groups[0]) == 2 * 3 * 200 * (2 * 64 + 64 + 64));
}

TEST_CASE("skipped cells cost nothing") {
  const Plan plan = plan_of(entry("window", R"("budget": 0.0001)"));
  CHECK(multiply_adds(plan, plan.groups[0]) == 0.0);
}

}  // namespace multiply_adds_test
}  // namespace kvbench::test
