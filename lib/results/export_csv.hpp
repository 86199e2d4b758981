// Flat rows of a results file.
#pragma once

#include <ostream>

#include "results/json.hpp"

namespace kvbench {

// RFC 4180, a header line first; one row per cell. Columns: id, status, reason, label, the key,
// params.*, derived.*, errors.*, mass.*, clusters.final, memory.*, counters.*, timing.seconds; a
// column that no cell has is left out, null is an empty field.
void export_csv(const Json& results, std::ostream& out);

// A Markdown table of what one reads first: label, parameters, place, seed, status, main errors,
// memory fraction; four significant digits.
void export_markdown(const Json& results, std::ostream& out);

}  // namespace kvbench
