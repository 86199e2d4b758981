// `run --print METRIC`: a whole sweep of one setting as one number, for programs that search.
#pragma once

#include <string>

#include "results/cell_records.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Throws InputError if `metric` is not the path of a number of cells, or the plan has several
// settings (label, which names the storage, parameters, number of tokens), or none.
void require_one_setting(const Plan& plan, const std::string& metric);

// Prints the mean of the metric over units, each the mean over its seeds; memory.fraction is bytes
// over bytes. On standard error, where cells were skipped: how many units it is over. Throws
// InputError if the metric is null in a cell that was not skipped.
void print_one_number(const Plan& plan, const CellRecords& records, const std::string& metric);

}  // namespace kvbench
