// Shards: the groups of a plan dealt to machines that know nothing of each other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// Part `index` of `count`, counted from 1.
struct Shard {
  int index = 1;
  int count = 1;

  bool is_whole() const { return count == 1; }
  std::string text() const;  // "2/3"
};

// Most shards that a plan is cut into.
inline constexpr int kMaxShards = 1'000'000;

// Reads "2/3"; throws InputError.
Shard read_shard(const std::string& text);

// The shard, from 1, of each group of the plan. Depends on the plan and on `cost` (one per group,
// in any unit) alone, so that machines agree without talking: from the costliest down, each group
// goes to the shard with the least so far, ties to what comes first. The layers of a sequence that
// an algorithm decides for together stay together; all KV heads of a layer are one group. With more
// shards than such parts some are empty.
std::vector<int> deal_groups(const Plan& plan, const std::vector<double>& cost, int count);

}  // namespace kvbench
