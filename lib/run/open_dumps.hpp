// Opens the dumps of a sweep and describes them for planning.
#pragma once

#include <string>
#include <vector>

#include "core/kept_cache.hpp"
#include "dump/dump.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct OpenDumps {
  std::vector<Dump> dumps;
  std::vector<PlannedDump> planned;  // element by element the same dumps
  std::vector<std::string> notes;    // notes on what is allowed and may be a mistake
};

// Checks the structure of each dump and takes its fingerprint; opens the cache and calibration
// files that parameters name, and sets them in `config`. Notes which cache files have rows of heads
// that no dump has: whole files are skipped with a reason, such heads alone would not be noticed.
// Throws one InputError with the errors of all of them, after those that `config` carries.
OpenDumps open_dumps(SweepConfig& config, const DumpOptions& options = {});
// The same of a dump that is open, for a sweep that names no cache files.
OpenDumps described(Dump dump, SweepConfig& config);

// Throws InputError unless the rows of a cache file are of heads that the dump at `path` has, and
// fit their streams; all errors at once.
void require_heads_of(const KeptCache& cache, const std::string& path);

}  // namespace kvbench
