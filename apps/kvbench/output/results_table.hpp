// The table that a run ends with.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "results/summary.hpp"

namespace kvbench {

// One row per algorithm (per label), best first: the lowest error that any of its settings reaches
// (mean over seeds and units of relative_l2.mean), the memory that this took, and the lowest error
// within given fractions of exact attention's memory. Empty if none has an error.
// `columns`: as Table::text() has it.
std::string results_table(const std::vector<SettingMeans>& settings, std::size_t columns);

}  // namespace kvbench
