#include "run/complete_heads.hpp"

#include <algorithm>

namespace kvbench {

CompleteHeads complete_heads(const Plan& plan, const CellRecords& records) {
  Summary summary(plan.tokens_vary);
  std::size_t complete = 0;
  for (const PlannedHead& head : plan.cells.heads()) {
    if (std::ranges::any_of(
            head.cells, [&](std::size_t c) { return records.state(c) == CellState::kMissing; })) {
      continue;
    }
    ++complete;
    for (const std::size_t c : head.cells) {
      Json record = records.read(c);
      record["label"] = *plan.cells[c].label;
      summary.add(record);
    }
  }
  return {complete, plan.cells.heads().size(), summary.compared()};
}

}  // namespace kvbench
