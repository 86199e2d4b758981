// `run --print METRIC`: a whole sweep of one setting as one number, for programs that search.
#pragma once

#include <string>

#include "results/cell_records.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Throws InputError if `metric` is not the path of a number of cells, or the plan has several
// settings (label, which names the storage, parameters, number of tokens), or none.
void require_one_setting(const Plan& plan, const std::string& metric);

// The mean of the metric over the cells of the plan: over units, unless `only` left some of them
// fewer seeds than others. Throws InputError if it is null in one of them, or a cell is not ok.
double mean_of(const Plan& plan, const CellRecords& records, const std::string& metric);

}  // namespace kvbench
