// Results as a Markdown table.
#pragma once

#include <ostream>

#include "results/export_rows.hpp"

namespace kvbench {

// Table of the main numbers, one row per cell: label, parameters, place, seed, status, main errors,
// memory fraction; four significant digits.
void export_markdown(const VisitRecords& cells, std::ostream& out);

// The same of the records of whole layers, with their means over rows.
void export_layers_markdown(const VisitRecords& layers, std::ostream& out);

}  // namespace kvbench
