// The part of a plan that one run is to do: all of it, or one shard.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sweep/plan.hpp"
#include "sweep/shard.hpp"

namespace kvbench {

// The shard, from 1, of each KV head, dealt by multiply-adds.
PerHead<int> deal_shards(const Plan& plan, int count);

struct ShardSelection {
  Shard shard;
  PerHead<bool> heads;
  std::vector<bool> groups;  // per group of the plan, whether one of its heads is selected
  std::size_t cells = 0;     // cells of the selected heads

  bool has(std::size_t group, int kv_head) const { return heads[group][kv_head]; }
  bool has(const PlannedCell& cell) const { return has(cell.group, cell.kv_head); }
};

// `shard`: "2/3", or empty for all. Throws InputError.
ShardSelection select_shard(const Plan& plan, const std::string& shard);

}  // namespace kvbench
