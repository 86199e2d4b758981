#include "share.hpp"

#include <algorithm>

#include "footprint.hpp"

namespace kvbench {

void add_shard_option(CLI::App& command, std::string& shard) {
  command
      .add_option("--shard", shard,
                  "Only part i of n, dealt by estimated cost; `kvbench merge` joins the parts")
      ->type_name("i/n");
}

std::vector<int> deal(const Plan& plan, int count) {
  std::vector<double> cost;
  for (const PlannedGroup& group : plan.groups) {
    cost.push_back(footprint(plan, group, 1).multiply_adds);
  }
  return deal_groups(plan, cost, count);
}

Share share_of(const Plan& plan, const std::string& shard) {
  Share share;
  if (!shard.empty()) share.shard = read_shard(shard);
  share.groups.assign(plan.groups.size(), true);
  if (!share.shard.is_whole()) {
    const std::vector<int> dealt = deal(plan, share.shard.count);
    std::transform(dealt.begin(), dealt.end(), share.groups.begin(),
                   [&](int index) { return index == share.shard.index; });
  }
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (share.groups[g]) share.cells += plan.groups[g].cells.size();
  }
  return share;
}

}  // namespace kvbench
