// Results as a Markdown table.
#pragma once

#include <ostream>

#include "json/json.hpp"

namespace kvbench {

// What one reads first, one row per cell: label, parameters, place, seed, status, main errors,
// memory fraction; four significant digits.
void export_markdown(const Json& results, std::ostream& out);

// The same of the records of whole layers, with their means over rows.
void export_layers_markdown(const Json& results, std::ostream& out);

}  // namespace kvbench
