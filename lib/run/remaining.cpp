#include "run/remaining.hpp"

namespace kvbench {

Remaining count_remaining(const Plan& plan, const ShardSelection& selection,
                          const CellRecords& records) {
  Remaining remaining;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (!selection.has(plan.cells[c])) continue;
    if (records.state(c) == CellState::kMissing) ++remaining.missing;
    if (records.state(c) == CellState::kFailed) ++remaining.failed;
  }
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    if (!selection.groups[plan.layer_records[l].group]) continue;
    if (records.layer_state(l) == CellState::kMissing) ++remaining.missing_layers;
    if (records.layer_state(l) == CellState::kFailed) ++remaining.failed_layers;
  }
  return remaining;
}

}  // namespace kvbench
