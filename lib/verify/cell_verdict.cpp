#include "verify/cell_verdict.hpp"

#include "results/cell_field.hpp"

namespace kvbench {

void CellVerdict::add(const Json& cell, const std::vector<RecordDifference>& found) {
  ++computed;
  equal += found.empty() ? 1 : 0;
  for (const RecordDifference& one : found) differences.push_back({cell_reference(cell), one});
}

}  // namespace kvbench
