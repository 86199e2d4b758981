// Groups failures of one cause: how many there are and which is the first.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

struct FailureGroup {
  std::string reason;     // of the first; " (and similar)" if the numbers of others differ
  std::size_t first = 0;  // index
  std::size_t count = 0;
};

// Reasons that differ in their numbers alone (rows, heads, tokens, bytes) are of one cause. In the
// order in which the causes come.
std::vector<FailureGroup> group_failures(const std::vector<std::string>& reasons);

// A line per cause of cells that have a `reason`, per cell for the others: "CELL", "CELL: REASON"
// or "12 cells: REASON; the first: CELL".
std::vector<std::string> cell_lines(const std::vector<Json>& cells);

}  // namespace kvbench
