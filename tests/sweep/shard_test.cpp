#include "sweep/shard.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "sweep_folder.hpp"

namespace kvbench::test {
namespace {

// One dump with a sequence of so many layers, and one cell per layer and head.
Plan plan_of_layers(const SweepFolder& folder, int layers) {
  std::vector<int> list(static_cast<std::size_t>(layers));
  std::iota(list.begin(), list.end(), 0);
  return make_plan(folder.parse(sweep(entry("exact", ""))), {planned_dump("a", 100, list, 2)});
}

std::vector<double> loads(const std::vector<int>& dealt, const std::vector<double>& cost,
                          int count) {
  std::vector<double> sums(static_cast<std::size_t>(count), 0.0);
  for (std::size_t g = 0; g < dealt.size(); ++g) {
    sums[static_cast<std::size_t>(dealt[g] - 1)] += cost[g];
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

TEST_CASE("from the costliest down, each group goes to the shard with the least") {
  const SweepFolder folder;
  const Plan plan = plan_of_layers(folder, 6);
  // 9 -> 1, 8 -> 2, 7 -> 3, 6 -> 3 (7 + 6), 5 -> 2 (8 + 5), 4 -> 1 (9 + 4)
  CHECK(deal_groups(plan, {4, 5, 6, 7, 8, 9}, 3) == std::vector<int>{1, 2, 3, 3, 2, 1});
  // Ties: groups in the plan's order, shards from the first.
  CHECK(deal_groups(plan, {1, 1, 1, 1, 1, 1}, 4) == std::vector<int>{1, 2, 3, 4, 1, 2});
  CHECK(deal_groups(plan, {4, 5, 6, 7, 8, 9}, 1) == std::vector<int>(6, 1));
}

TEST_CASE("every group has one shard, no shard has more than a third over what is fair") {
  // Graham's bound for this rule: at most 4/3 of the best possible.
  const SweepFolder folder;
  const Plan plan = plan_of_layers(folder, 30);
  std::vector<double> cost;
  for (int g = 0; g < 30; ++g) cost.push_back(1.0 + (g * 7919) % 101);
  const double total = std::accumulate(cost.begin(), cost.end(), 0.0);
  const double most = *std::max_element(cost.begin(), cost.end());
  for (const int count : {2, 3, 7, 16}) {
    const std::vector<int> dealt = deal_groups(plan, cost, count);
    for (const int shard : dealt) CHECK((shard >= 1 && shard <= count));
    const auto sums = loads(dealt, cost, count);
    CHECK(*std::max_element(sums.begin(), sums.end()) <= 4.0 / 3.0 * std::max(total / count, most));
  }
}

TEST_CASE("more shards than groups leave some empty, and never none") {
  const SweepFolder folder;
  const Plan plan = plan_of_layers(folder, 2);
  CHECK(deal_groups(plan, {1, 2}, 5) == std::vector<int>{2, 1});
}

TEST_CASE("layers whose scores are added up stay together, the others do not") {
  const SweepFolder folder;
  Plan plan =
      make_plan(folder.parse(sweep(entry("exact", ""))), {planned_dump("a", 100, {0, 1, 2, 3}, 1)});
  const Scope both{.layers = {0, 2}, .kv_heads = {0}};
  plan.cells[plan.groups[0].cells[0]].scope = std::make_shared<const Scope>(both);
  plan.cells[plan.groups[2].cells[0]].scope = plan.cells[plan.groups[0].cells[0]].scope;
  // Parts: {0, 2} of cost 2, {1}, {3}.
  CHECK(deal_groups(plan, {1, 1, 1, 1}, 4) == std::vector<int>{1, 2, 1, 3});
  // A cell that is skipped adds nothing up.
  for (const std::size_t g : {std::size_t{0}, std::size_t{2}})
    plan.cells[plan.groups[g].cells[0]].skip_reason = "no queries";
  CHECK(deal_groups(plan, {1, 1, 1, 1}, 4) == std::vector<int>{1, 2, 3, 4});
}

}  // namespace
}  // namespace kvbench::test
