// Dumps as a plan wants to know them.
#pragma once

#include <string>
#include <vector>

#include "dump/dump.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Opens a dump, checks its structure and takes its fingerprint. Throws InputError.
PlannedDump describe_dump(const std::string& path);

struct OpenDumps {
  std::vector<Dump> dumps;
  std::vector<PlannedDump> planned;  // element by element the same dumps
};

// The same of all that a sweep names, kept open; their faults are thrown together, after those of
// the sweep itself.
OpenDumps open_dumps(const SweepConfig& config);

}  // namespace kvbench
