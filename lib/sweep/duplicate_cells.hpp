// Two entries of a sweep that describe the same cell.
#pragma once

#include "json/pointer.hpp"
#include "sweep/config.hpp"

namespace kvbench {

// Cells differ by algorithm and parameters, not by label. Reports one error for each pair of
// entries that share a point and whose `where`, with the sweep's `select`, can meet.
void refuse_repetitions(const SweepConfig& config, ErrorList& errors);

}  // namespace kvbench
