// The commands by which results say how a cell is computed again.
#pragma once

#include <string>

#include "cli/sweep_options.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// The command that computes a cell alone, into a folder of its own. Paths are written from the
// current folder. `folder`: where sweep.json lies if the sweep came from no file.
std::string repro_of(const SweepOptions& options, const std::string& folder,
                     const PlannedCell& cell);

// The same of the cells of a record of a whole layer.
std::string repro_of(const SweepOptions& options, const std::string& folder, const Plan& plan,
                     const PlannedLayerRecord& layer);

}  // namespace kvbench
