#include "run/shard_selection.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "run/multiply_adds.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/sweep_folder.hpp"

namespace kvbench::test {
namespace shard_selection_test {

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

TEST_CASE("shards select every KV head exactly once, with all of its cells") {
  const Plan plan = made_plan();
  for (int count = 1; count <= 20; ++count) {
    CAPTURE(count);
    PerHead<int> times(plan.groups.size(), std::vector<int>(2, 0));
    std::size_t cells = 0;
    for (int index = 1; index <= count; ++index) {
      const ShardSelection part =
          select_shard(plan, std::to_string(index) + "/" + std::to_string(count));
      CHECK(part.shard.index == index);
      for (std::size_t g = 0; g < plan.groups.size(); ++g) {
        CHECK(part.groups[g] == (part.heads[g][0] || part.heads[g][1]));
        for (std::size_t h = 0; h < 2; ++h) times[g][h] += part.heads[g][h] ? 1 : 0;
      }
      std::size_t selected = 0;
      for (const PlannedCell& cell : plan.cells) selected += part.has(cell) ? 1 : 0;
      CHECK(part.cells == selected);
      cells += part.cells;
    }
    CHECK(times == PerHead<int>(plan.groups.size(), std::vector<int>(2, 1)));
    CHECK(cells == plan.cells.size());
  }
}

TEST_CASE("KV heads are dealt by multiply-adds: the four long ones part") {
  const Plan plan = made_plan();
  CHECK(multiply_adds(plan, plan.groups[7]) > 3 * multiply_adds(plan, plan.groups[0]));
  const PerHead<int> dealt = deal_shards(plan, 4);
  CHECK(std::set<int>{dealt[7][0], dealt[7][1], dealt[8][0], dealt[8][1]}.size() == 4);
  CHECK(dealt == deal_shards(plan, 4));
}

TEST_CASE("a group's work is that of its heads") {
  const Plan plan = made_plan();
  for (const WorkGroup& group : plan.groups) {
    const std::vector<double> heads = head_multiply_adds(plan, group);
    REQUIRE(heads.size() == 2);
    CHECK(heads[0] == heads[1]);
    CHECK(heads[0] + heads[1] == multiply_adds(plan, group));
  }
}

TEST_CASE("what is not a shard is refused") {
  CHECK_THROWS_AS(select_shard(made_plan(), "3/2"), InputError);
}

}  // namespace shard_selection_test
}  // namespace kvbench::test
