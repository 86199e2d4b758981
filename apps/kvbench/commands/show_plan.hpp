// Output of `kvbench plan`, which `kvbench run --dry-run` prints too.
#pragma once

#include <cstdint>
#include <string>

#include "cli/sweep_options.hpp"

namespace kvbench {

struct PlanOptions {
  SweepOptions sweep;
  std::string device = "auto";
  std::string shard;
  // A dump that is described (run/described_dump.hpp); empty: there are dumps.
  std::string shape = {};
  int threads = 0;
  std::uint64_t memory_limit = 0;  // bytes; 0: what the process may use
  bool json = false;
};

// Prints the plan and returns the exit code; nothing is written.
int show_plan(const PlanOptions& options);

}  // namespace kvbench
