#include "run/shard_selection.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <string>

#include "run/multiply_adds.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {
namespace {

// 7 layers of 100 tokens and 2 of 400.
Plan made_plan() {
  const SweepFolder folder;
  const std::string text = R"({"schema_version": 1, "name": "quick", "dumps": ["a.h5", "b.h5"],
    "algorithms": [)" + entry("exact", "") +
                           "]}";
  return make_plan(folder.parse(text), {planned_dump("a", 100, {0, 1, 2, 3, 4, 5, 6}, 2),
                                        planned_dump("b", 400, {0, 1}, 2)});
}

TEST_CASE("without a shard everything is selected") {
  const Plan plan = made_plan();
  const ShardSelection all = select_shard(plan, "");
  CHECK(all.shard.is_whole());
  CHECK(all.groups == std::vector<bool>(9, true));
  CHECK(all.cells == plan.cells.size());
}

TEST_CASE("shards select every group exactly once, with all of its cells") {
  const Plan plan = made_plan();
  for (int count = 1; count <= 12; ++count) {
    CAPTURE(count);
    std::vector<int> times(plan.groups.size(), 0);
    std::size_t cells = 0;
    for (int index = 1; index <= count; ++index) {
      const ShardSelection part =
          select_shard(plan, std::to_string(index) + "/" + std::to_string(count));
      CHECK(part.shard.index == index);
      for (std::size_t g = 0; g < plan.groups.size(); ++g) times[g] += part.groups[g] ? 1 : 0;
      for (const PlannedCell& cell : plan.cells) {
        CHECK(part.has(cell) == part.groups[cell.group]);
      }
      cells += part.cells;
    }
    CHECK(times == std::vector<int>(plan.groups.size(), 1));
    CHECK(cells == plan.cells.size());
  }
}

TEST_CASE("groups are dealt by multiply-adds: the two long ones part") {
  const Plan plan = made_plan();
  CHECK(multiply_adds(plan, plan.groups[7]) > 3 * multiply_adds(plan, plan.groups[0]));
  const std::vector<int> dealt = deal_shards(plan, 2);
  CHECK(dealt[7] != dealt[8]);
  CHECK(dealt == deal_shards(plan, 2));
}

TEST_CASE("what is not a shard is refused") {
  CHECK_THROWS_AS(select_shard(made_plan(), "3/2"), InputError);
}

}  // namespace
}  // namespace kvbench::test
