#include "run/shard_selection.hpp"

#include <algorithm>

#include "run/multiply_adds.hpp"

namespace kvbench {

std::vector<int> deal_shards(const Plan& plan, int count) {
  std::vector<double> cost;
  for (const WorkGroup& group : plan.groups) cost.push_back(multiply_adds(plan, group));
  return deal_groups(plan, cost, count);
}

ShardSelection select_shard(const Plan& plan, const std::string& shard) {
  ShardSelection selection;
  if (!shard.empty()) selection.shard = read_shard(shard);
  selection.groups.assign(plan.groups.size(), true);
  if (!selection.shard.is_whole()) {
    const std::vector<int> dealt = deal_shards(plan, selection.shard.count);
    std::transform(dealt.begin(), dealt.end(), selection.groups.begin(),
                   [&](int index) { return index == selection.shard.index; });
  }
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (selection.groups[g]) selection.cells += plan.groups[g].cells.size();
  }
  return selection;
}

}  // namespace kvbench
