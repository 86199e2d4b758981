// Making the plan of a sweep.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "sweep/config.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Bytes that a plan with this number of cells and points takes, with what a run keeps per cell of
// its journal. As measured; tests/cli/memory_test.py holds runs to it.
double plan_bytes(double cells, double points);

// Crosses a checked sweep, whose files are set, with its dumps. `only`: globs on cell ids and
// paths ('*' and '?' stay within a path component), empty = all; each must match a cell. Throws
// InputError with every error found (unknown sequences, layers or heads, too many tokens, prompt or
// rows out of range, equal fingerprints, cache files of other streams, too many cells), after those
// that `config` carries; and, before a cell is made, where the plan alone needs more than
// `memory_limit` bytes.
Plan make_plan(const SweepConfig& config, std::vector<PlannedDump> dumps,
               const std::vector<std::string>& only = {}, const std::string& device = "cpu",
               double memory_limit = std::numeric_limits<double>::infinity());

}  // namespace kvbench
