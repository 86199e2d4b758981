// The table that a run ends with.
#pragma once

#include <string>

#include "json/json.hpp"

namespace kvbench {

// One row per algorithm (per label), best first: the lowest error that any of its settings reaches
// (mean over seeds and units of relative_l2.mean), the memory that this took, and the lowest error
// within given fractions of exact attention's memory. Empty if `summary` has no errors.
std::string results_table(const Json& summary);

}  // namespace kvbench
