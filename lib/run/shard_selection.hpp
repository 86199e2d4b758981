// The part of a plan that one run is to do: all of it, or one shard.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sweep/plan.hpp"
#include "sweep/shard.hpp"

namespace kvbench {

// The shard, from 1, of each group, dealt by multiply-adds.
std::vector<int> deal_shards(const Plan& plan, int count);

struct ShardSelection {
  Shard shard;
  std::vector<bool> groups;  // per group of the plan, whether it is selected
  std::size_t cells = 0;     // of the selected groups

  bool has(const PlannedCell& cell) const { return groups[cell.group]; }
};

// `shard`: "2/3", or empty for all. Throws InputError.
ShardSelection select_shard(const Plan& plan, const std::string& shard);

}  // namespace kvbench
