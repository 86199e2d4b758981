// Drawn cells of results against the same cells computed again.
#pragma once

#include <cstddef>
#include <vector>

#include "compare/record_differences.hpp"
#include "json/json.hpp"

namespace kvbench {

struct CellDifference {
  Json cell;  // cell_reference()
  RecordDifference what;
};

struct CellVerdict {
  std::size_t computed = 0;
  std::size_t equal = 0;
  std::vector<CellDifference> differences;

  // `found`: the differences of one cell that was computed again.
  void add(const Json& cell, const std::vector<RecordDifference>& found);
};

}  // namespace kvbench
