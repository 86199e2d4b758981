// Two entries of a sweep that describe the same cell.
#pragma once

#include "json/pointer.hpp"
#include "sweep/config.hpp"

namespace kvbench {

// Cells differ by algorithm and parameters, not by label. Reports one error for each entry that
// shares a point with an earlier one, where the `where` of both, with the sweep's `select`, can
// meet; an entry that was reported is compared with no later one.
void refuse_repetitions(const SweepConfig& config, ErrorList& errors);

}  // namespace kvbench
