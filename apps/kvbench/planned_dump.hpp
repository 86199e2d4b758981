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

// The same of several, kept open; the faults of all are thrown together.
OpenDumps open_dumps(const std::vector<std::string>& paths);

}  // namespace kvbench
