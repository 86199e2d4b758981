// Cells of results computed again.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "compare/record_differences.hpp"
#include "run/run_device.hpp"
#include "run/run_observer.hpp"
#include "run/run_sweep.hpp"
#include "sweep/plan.hpp"
#include "verify/cell_verdict.hpp"
#include "verify/sample.hpp"

namespace kvbench {

// The drawn cells that `whole`, the plan of the results' own sweep, makes, by id; the others differ
// already, and are added to the verdict.
std::map<std::string, const Json*> known_cells(const Sample& sample, const Plan& whole,
                                               CellVerdict& verdict);

// Computes the cells of `planned` with a journal in a temporary folder and adds those that are
// `recorded`, by id, to the verdict. Ends early once `stop` is set. Throws as execute(), and
// InputError where no temporary folder can be made.
void recompute(const PlannedRun& planned, const RunDevice& device,
               const std::map<std::string, const Json*>& recorded, const NumberTolerance& tolerance,
               RunObserver& observer, std::atomic<bool>& stop, CellVerdict& verdict);

}  // namespace kvbench
