// Opens the dumps of a sweep and describes them for planning.
#pragma once

#include <cstdint>
#include <vector>

#include "dump/dump.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct OpenDumps {
  std::vector<Dump> dumps;
  std::vector<PlannedDump> planned;  // element by element the same dumps
};

// Checks the structure of each dump and takes its fingerprint. `memory_limit`: as of DumpOptions.
// Throws one InputError with the
// faults of all of them, after those that `config` carries.
OpenDumps open_dumps(const SweepConfig& config, std::uint64_t memory_limit = 0);

}  // namespace kvbench
