#include "output/run_reasons.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "output/failure_groups.hpp"
#include "output/log.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kShown = 5;

// A line per cause, `words` around it. `name_of` the index of a reason: what it is of; none where
// that is not said.
void log_groups(const std::vector<std::string>& reasons, const char* words,
                const std::function<std::string(std::size_t)>& name_of = nullptr) {
  const std::vector<FailureGroup> found = group_failures(reasons);
  for (std::size_t k = 0; k < std::min(found.size(), kShown); ++k) {
    log_text("  {} {}: {}{}\n", found[k].count, words, found[k].reason,
             name_of ? fmt::format(" (first: {})", name_of(found[k].first)) : "");
  }
  if (found.size() > kShown) log_text("  and {} more reasons\n", found.size() - kShown);
}

}  // namespace

void log_failures(const Plan& plan, const Journal& journal) {
  std::vector<std::string> reasons;
  std::vector<const PlannedCell*> cells;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (journal.state(c) != CellState::kFailed) continue;
    reasons.push_back(journal.read(c).value("reason", ""));
    cells.push_back(&plan.cells[c]);
  }
  log_groups(reasons, "failed", [&](std::size_t i) { return cell_path(plan, *cells[i]); });
}

void log_skips(const Plan& plan, const ShardSelection& selection) {
  std::vector<std::string> reasons;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason && selection.has(cell)) reasons.push_back(*cell.skip_reason);
  }
  log_groups(reasons, "skipped");
}

void log_layer_failures(const Plan& plan, const Journal& journal) {
  std::vector<std::string> reasons;
  std::vector<const PlannedLayerRecord*> layers;
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    const PlannedLayerRecord& layer = plan.layer_records[l];
    const bool by_cell = std::any_of(layer.cells.begin(), layer.cells.end(), [&](std::size_t c) {
      return journal.state(c) == CellState::kFailed;
    });
    if (by_cell || journal.layer_state(l) != CellState::kFailed) continue;
    reasons.push_back(journal.read_layer(l).value("reason", ""));
    layers.push_back(&layer);
  }
  log_groups(reasons, "records of whole layers failed",
             [&](std::size_t i) { return layer_record_path(plan, *layers[i]); });
}

}  // namespace kvbench
