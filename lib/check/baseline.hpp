// Baselines: results files cut down to what bounds hold later results against.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "check/bounds.hpp"
#include "check/checked_results.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// Writes every file that `bounds` name as baseline from `results`: of the cells that those bounds
// select the key, the label and the bounded metrics, nothing of machine, time or paths. Returns
// each path with its number of cells, in order of appearance. Throws InputError, before anything is
// written, if the results are incomplete, such a cell failed or a bound selects none;
// IoError if a file cannot be written.
std::vector<std::pair<std::string, Index>> write_baselines(const BoundsFile& bounds,
                                                           const CheckedResults& results);

}  // namespace kvbench
