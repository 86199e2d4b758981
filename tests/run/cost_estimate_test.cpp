#include "estimate/cost_estimate.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "run/multiply_adds.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {
namespace cost_estimate_test {

// Dump a: 3 layers of 100 tokens; dump b: 1 layer of 400. Each of 2 KV heads.
Plan made_plan(const std::string& algorithms = entry("exact", ""),
               const std::vector<AlgorithmDescription>& table = made_up_algorithms()) {
  const SweepFolder folder;
  const std::string text = R"({"schema_version": 1, "name": "quick", "dumps": ["a.h5", "b.h5"],
    "algorithms": [)" + algorithms +
                           "]}";
  return make_plan(parse_sweep(text, folder.file("quick.json"), {}, table),
                   {planned_dump("a", 100, {0, 1, 2}, 2), planned_dump("b", 400, {0}, 2)});
}

// A clock that moves only by the time that timing a head is declared to take.
struct MadeUpTimings {
  double clock = 0.0;
  double spends = 0.0;
  double short_head = 0.0;              // seconds that a head of dump a takes
  double long_head = 0.0;               // seconds that a head of dump b takes
  std::size_t unknown = 0;              // cells of every head
  std::vector<std::size_t> timed = {};  // groups, in order
  std::vector<double> budgets = {};

  CostEstimate estimate(const Plan& plan, const ShardSelection& selection, double seconds) {
    return extrapolate_cost(
        plan, selection, seconds,
        [&](const HeadCells& head, double budget) -> TimedSample {
          timed.push_back(head.group);
          budgets.push_back(budget);
          clock += spends;
          return {head.group == 3 ? long_head : short_head, 2, unknown};
        },
        [&] { return clock; });
  }
};

TEST_CASE("one head of each kind is timed, and every head of the kind takes as long") {
  const Plan plan = made_plan();
  MadeUpTimings timings{.clock = 100.0, .short_head = 0.25, .long_head = 8.0};
  const CostEstimate cost = timings.estimate(plan, select_shard(plan, ""), 2.0);
  REQUIRE(timings.timed.size() == 2);
  CHECK(timings.timed[0] == 3);  // most work first
  CHECK(timings.timed[1] < 3);
  CHECK(cost.seconds == std::vector<double>{0.5, 0.5, 0.5, 16.0});
  CHECK(cost.cells == 4);
  CHECK(cost.total() == 17.5);
  // Half of the time left, dealt to the kinds left.
  CHECK(timings.budgets == std::vector<double>{0.5, 1.0});
}

TEST_CASE("cells whose time is unknown are those of every head of the kind") {
  const Plan plan = made_plan();
  MadeUpTimings timings{.short_head = 0.25, .long_head = 8.0, .unknown = 3};
  CHECK(timings.estimate(plan, select_shard(plan, ""), 2.0).unknown_cells == 8 * 3);
}

TEST_CASE("settings that were solved for a memory are of one kind in layers of one shape") {
  const Plan plan =
      made_plan(entry("window", R"("budget": {"memory": [0.25, 0.5]})"), all_algorithms());
  MadeUpTimings timings{.short_head = 0.25, .long_head = 8.0};
  const CostEstimate cost = timings.estimate(plan, select_shard(plan, ""), 2.0);
  CHECK(timings.timed.size() == 2);
  CHECK(cost.seconds == std::vector<double>{0.5, 0.5, 0.5, 16.0});
}

TEST_CASE("a kind that there is no time for costs as much per multiply-add as the others") {
  const Plan plan = made_plan();
  MadeUpTimings timings{.spends = 3.0, .long_head = 8.0};
  const CostEstimate cost = timings.estimate(plan, select_shard(plan, ""), 2.0);
  REQUIRE(timings.timed == std::vector<std::size_t>{3});
  CHECK(cost.seconds[3] == 16.0);
  const double rate = 16.0 / multiply_adds(plan, plan.groups[3]);
  for (std::size_t g = 0; g < 3; ++g) {
    CHECK(cost.seconds[g] == doctest::Approx(rate * multiply_adds(plan, plan.groups[g])));
  }
}

TEST_CASE("the first kind is timed even where there is no time at all") {
  const Plan plan = made_plan();
  MadeUpTimings timings{.long_head = 8.0};
  timings.estimate(plan, select_shard(plan, ""), 0.0);
  CHECK(timings.timed == std::vector<std::size_t>{3});
  CHECK(timings.budgets[0] > 0.0);
}

TEST_CASE("groups that are not selected cost nothing and are not timed") {
  const Plan plan = made_plan();
  ShardSelection selection = select_shard(plan, "");
  selection.groups = {false, true, false, false};
  for (const std::size_t g : {0, 2, 3}) selection.heads[g].assign(selection.heads[g].size(), false);
  MadeUpTimings timings{.short_head = 0.25};
  const CostEstimate cost = timings.estimate(plan, selection, 2.0);
  CHECK(timings.timed == std::vector<std::size_t>{1});
  CHECK(cost.seconds == std::vector<double>{0.0, 0.5, 0.0, 0.0});
}

TEST_CASE("heads with other cells are of another kind, skipped cells are none") {
  const Plan plan = made_plan(entry("exact", "") + R"(, {"algorithm": "window",
    "params": {"budget": 8}, "where": {"layers": [1]}}, )" +
                              entry("window", R"("budget": 0.0001)"));
  MadeUpTimings timings{.short_head = 1.0, .long_head = 1.0};
  timings.estimate(plan, select_shard(plan, ""), 1.0);
  CHECK(timings.timed.size() == 3);

  Plan projected = made_plan();
  projected.groups[1].hidden = 64;
  MadeUpTimings of_projected;
  of_projected.estimate(projected, select_shard(projected, ""), 1.0);
  CHECK(of_projected.timed.size() == 3);

  const Plan skipped = made_plan(entry("window", R"("budget": 0.0001)"));
  MadeUpTimings none;
  CHECK(none.estimate(skipped, select_shard(skipped, ""), 1.0).total() == 0.0);
  CHECK(none.timed.empty());
}

}  // namespace cost_estimate_test
}  // namespace kvbench::test
