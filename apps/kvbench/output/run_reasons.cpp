#include "output/run_reasons.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "output/failure_groups.hpp"
#include "output/log.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kShown = 5;

}  // namespace

void log_failures(const Plan& plan, const Journal& journal) {
  std::vector<std::string> reasons;
  std::vector<const PlannedCell*> cells;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (journal.state(c) != CellState::kFailed) continue;
    reasons.push_back(journal.read(c).value("reason", ""));
    cells.push_back(&plan.cells[c]);
  }
  const std::vector<FailureGroup> found = group_failures(reasons);
  for (std::size_t k = 0; k < std::min(found.size(), kShown); ++k) {
    log_text("  {} failed: {} (first: {})\n", found[k].count, found[k].reason,
             cell_path(plan, *cells[found[k].first]));
  }
  if (found.size() > kShown) log_text("  and {} more reasons\n", found.size() - kShown);
}

void log_skips(const Plan& plan, const ShardSelection& selection) {
  std::vector<std::string> reasons;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason && selection.has(cell)) reasons.push_back(*cell.skip_reason);
  }
  const std::vector<FailureGroup> found = group_failures(reasons);
  for (std::size_t k = 0; k < std::min(found.size(), kShown); ++k) {
    log_text("  {} skipped: {}\n", found[k].count, found[k].reason);
  }
  if (found.size() > kShown) log_text("  and {} more reasons\n", found.size() - kShown);
}

void log_layer_failures(const Plan& plan, const Journal& journal) {
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    const PlannedLayerRecord& layer = plan.layer_records[l];
    const bool by_cell = std::any_of(layer.cells.begin(), layer.cells.end(), [&](std::size_t c) {
      return journal.state(c) == CellState::kFailed;
    });
    if (by_cell || journal.layer_state(l) != CellState::kFailed) continue;
    log_text("  a record of a whole layer failed: {} ({})\n",
             journal.read_layer(l).value("reason", ""), layer_record_path(plan, layer));
    return;
  }
}

}  // namespace kvbench
