#include "sweep/shard.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "sweep/make_plan.hpp"
#include "sweep_folder.hpp"

namespace kvbench::test {
namespace shard_test {

// One dump with a sequence of so many layers, and one cell per layer and head.
Plan plan_of_layers(const SweepFolder& folder, int layers, int kv_heads = 1) {
  std::vector<int> list(layers);
  std::iota(list.begin(), list.end(), 0);
  return make_plan(folder.parse(sweep(entry("exact", ""))),
                   {planned_dump("a", 100, list, kv_heads)});
}

// Shards of layers with one KV head each.
std::vector<int> dealt(const Plan& plan, const std::vector<double>& cost, int count) {
  PerHead<double> of_heads;
  for (const double one : cost) of_heads.push_back({one});
  std::vector<int> out;
  for (const std::vector<int>& heads : deal_heads(plan, of_heads, count)) {
    REQUIRE(heads.size() == 1);
    out.push_back(heads[0]);
  }
  return out;
}

std::vector<double> loads(const std::vector<int>& dealt, const std::vector<double>& cost,
                          int count) {
  std::vector<double> sums(count, 0.0);
  for (std::size_t g = 0; g < dealt.size(); ++g) {
    sums[dealt[g] - 1] += cost[g];
  }
  return sums;
}

TEST_CASE("i/n is read, and everything else refused") {
  CHECK(read_shard("2/3").index == 2);
  CHECK(read_shard("2/3").count == 3);
  CHECK(read_shard("2/3").text() == "2/3");
  CHECK(read_shard("1/1").is_whole());
  for (const char* wrong : {"0/3", "4/3", "-1/3", "1/-3", "1/0", "/3", "1/", "1", "", "a/b", "1/3x",
                            " 1/3", "+1/3", "1//3", "1/2/3", "1/99999999999999"}) {
    CAPTURE(wrong);
    CHECK_THROWS_WITH_AS(read_shard(wrong), doctest::Contains("--shard"), InputError);
  }
}

TEST_CASE("from the costliest down, each part goes to the shard with the least") {
  const SweepFolder folder;
  const Plan plan = plan_of_layers(folder, 6);
  // 9 -> 1, 8 -> 2, 7 -> 3, 6 -> 3 (7 + 6), 5 -> 2 (8 + 5), 4 -> 1 (9 + 4)
  CHECK(dealt(plan, {4, 5, 6, 7, 8, 9}, 3) == std::vector<int>{1, 2, 3, 3, 2, 1});
  // Ties: parts in the plan's order, shards from the first.
  CHECK(dealt(plan, {1, 1, 1, 1, 1, 1}, 4) == std::vector<int>{1, 2, 3, 4, 1, 2});
  CHECK(dealt(plan, {4, 5, 6, 7, 8, 9}, 1) == std::vector<int>(6, 1));
}

TEST_CASE("every part has one shard, no shard has more than a third over what is fair") {
  // Graham's bound for this rule: at most 4/3 of the best possible.
  const SweepFolder folder;
  const Plan plan = plan_of_layers(folder, 30);
  std::vector<double> cost;
  for (int g = 0; g < 30; ++g) cost.push_back(1.0 + (g * 7919) % 101);
  const double total = std::accumulate(cost.begin(), cost.end(), 0.0);
  const double most = *std::max_element(cost.begin(), cost.end());
  for (const int count : {2, 3, 7, 16}) {
    const std::vector<int> shards = dealt(plan, cost, count);
    for (const int shard : shards) CHECK((shard >= 1 && shard <= count));
    const auto sums = loads(shards, cost, count);
    CHECK(*std::max_element(sums.begin(), sums.end()) <= 4.0 / 3.0 * std::max(total / count, most));
  }
}

TEST_CASE("more shards than parts leave some empty, and never none") {
  const SweepFolder folder;
  const Plan plan = plan_of_layers(folder, 2);
  CHECK(dealt(plan, {1, 2}, 5) == std::vector<int>{2, 1});
}

TEST_CASE("layers whose scores are added up stay together, the others do not") {
  const SweepFolder folder;
  Plan plan = make_plan(folder.parse(sweep(
                            R"({"algorithm": "exact", "where": {"layers": [0, 2]}},
                               {"algorithm": "exact", "where": {"layers": [1, 3]}})")),
                        {planned_dump("a", 100, {0, 1, 2, 3}, 1)});
  PlannedSetting& setting = plan.cells.setting(plan.cells[2].setting);
  REQUIRE(plan.cells[0].setting == plan.cells[2].setting);
  setting.scope = std::make_shared<const Scope>(Scope{.layers = {0, 2}, .kv_heads = {0}});
  // Parts: {0, 2} of cost 2, {1}, {3}.
  CHECK(dealt(plan, {1, 1, 1, 1}, 4) == std::vector<int>{1, 2, 1, 3});
  // A cell that is skipped adds nothing up.
  setting.skip_reason = "no queries";
  CHECK(dealt(plan, {1, 1, 1, 1}, 4) == std::vector<int>{1, 2, 3, 4});
}

TEST_CASE("one large layer fills as many shards as it has KV heads") {
  const SweepFolder folder;
  const Plan plan = plan_of_layers(folder, 1, 4);
  CHECK(deal_heads(plan, {{1, 4, 2, 3}}, 4) == PerHead<int>{{4, 1, 3, 2}});
  CHECK(deal_heads(plan, {{1, 4, 2, 3}}, 2) == PerHead<int>{{1, 1, 2, 2}});
  CHECK(deal_heads(plan, {{1, 4, 2, 3}}, 9) == PerHead<int>{{4, 1, 3, 2}});
}

TEST_CASE("heads that are decided for or recorded together stay together") {
  const SweepFolder folder;
  const PerHead<double> cost = {{1, 1}, {1, 1}};
  Plan plan = make_plan(folder.parse(sweep(R"({"algorithm": "exact", "where": {"layers": [0]}},
                                              {"algorithm": "exact", "where": {"layers": [1]}})")),
                        {planned_dump("a", 100, {0, 1}, 2)});
  CHECK(deal_heads(plan, cost, 4) == PerHead<int>{{1, 2}, {3, 4}});
  plan.cells.setting(plan.cells[0].setting).scope =
      std::make_shared<const Scope>(Scope{.layers = {0}, .kv_heads = {0, 1}});
  CHECK(deal_heads(plan, cost, 4) == PerHead<int>{{1, 1}, {2, 3}});
  plan.groups[1].layer_records = {0};
  CHECK(deal_heads(plan, cost, 4) == PerHead<int>{{1, 1}, {2, 2}});
}

TEST_CASE("a KV head without cells is nobody's") {
  const SweepFolder folder;
  const Plan plan =
      make_plan(folder.parse(sweep(R"({"algorithm": "exact", "where": {"kv_heads": [0, 2]}})")),
                {planned_dump("a", 100, {0}, 3)});
  CHECK(deal_heads(plan, {{2, 9, 1}}, 3) == PerHead<int>{{1, 0, 2}});
}

}  // namespace shard_test
}  // namespace kvbench::test
