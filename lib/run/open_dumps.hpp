// Opens the dumps of a sweep and describes them for planning.
#pragma once

#include <vector>

#include "dump/dump.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct OpenDumps {
  std::vector<Dump> dumps;
  std::vector<PlannedDump> planned;  // element by element the same dumps
};

// Checks the structure of each dump and takes its fingerprint; opens the cache files that
// parameters name, and sets them in `config`. Throws one InputError with the errors of all of them,
// after those that `config` carries.
OpenDumps open_dumps(SweepConfig& config, const DumpOptions& options = {});

}  // namespace kvbench
