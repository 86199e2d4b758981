// The part of a plan that one run is to do: all of it, or what `--shard` deals to it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "sweep/plan.hpp"
#include "sweep/shard.hpp"

namespace kvbench {

void add_shard_option(CLI::App& command, std::string& shard);

// The shard, from 1, of each group, dealt by estimated cost.
std::vector<int> deal(const Plan& plan, int count);

struct Share {
  Shard shard;
  std::vector<bool> groups;  // per group of the plan, whether it is part of this share
  std::size_t cells = 0;

  bool has(const PlannedCell& cell) const { return groups[cell.group]; }
};

// `shard`: as on the command line, empty for all. Throws InputError.
Share share_of(const Plan& plan, const std::string& shard);

}  // namespace kvbench
