#include "run/shard_selection.hpp"

#include <algorithm>

#include "run/multiply_adds.hpp"

namespace kvbench {

PerHead<int> deal_shards(const Plan& plan, int count) {
  PerHead<double> cost;
  for (const WorkGroup& group : plan.groups) cost.push_back(head_multiply_adds(plan, group));
  return deal_heads(plan, cost, count);
}

ShardSelection select_shard(const Plan& plan, const std::string& shard) {
  ShardSelection selection;
  if (!shard.empty()) selection.shard = read_shard(shard);
  for (const WorkGroup& group : plan.groups) {
    selection.heads.emplace_back(static_cast<std::size_t>(group.kv_heads), true);
  }
  selection.groups.assign(plan.groups.size(), true);
  selection.cells = plan.cells.size();
  if (selection.shard.is_whole()) return selection;
  const PerHead<int> dealt = deal_shards(plan, selection.shard.count);
  for (std::size_t g = 0; g < dealt.size(); ++g) {
    std::transform(dealt[g].begin(), dealt[g].end(), selection.heads[g].begin(),
                   [&](int index) { return index == selection.shard.index; });
    selection.groups[g] = std::find(selection.heads[g].begin(), selection.heads[g].end(), true) !=
                          selection.heads[g].end();
  }
  selection.cells = 0;
  for (const PlannedHead& head : plan.cells.heads()) {
    if (selection.has(head.group, head.kv_head)) selection.cells += head.cells.size();
  }
  return selection;
}

}  // namespace kvbench
