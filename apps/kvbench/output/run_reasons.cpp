#include "output/run_reasons.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "output/failure_groups.hpp"
#include "output/log.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/layer_records.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kShown = 5;

// A line per cause, `words` around it. `name_of` the index of a failure: what it is of; none where
// that is not said.
void log_groups(const FailureGroups& failures, const char* words,
                const std::function<std::string(std::size_t)>& name_of = nullptr) {
  const std::vector<FailureGroup> found = failures.all();
  for (std::size_t k = 0; k < std::min(found.size(), kShown); ++k) {
    log_text("  {} {}: {}{}\n", found[k].count, words, found[k].reason,
             name_of ? fmt::format(" (first: {})", name_of(found[k].first)) : "");
  }
  if (found.size() > kShown) log_text("  and {} more reasons\n", found.size() - kShown);
}

}  // namespace

void log_failures(const Plan& plan, const Journal& journal) {
  FailureGroups failures;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (journal.state(c) != CellState::kFailed) continue;
    failures.add(journal.read(c).value("reason", ""), c);
  }
  log_groups(failures, "failed", [&](std::size_t c) { return cell_path(plan, plan.cells[c]); });
}

void log_skips(const Plan& plan, const ShardSelection& selection) {
  FailureGroups skips;
  plan.cells.for_each_setting(CellRange(0, plan.cells.size()),
                              [&](const PlannedCell& cell, std::size_t count) {
                                if (cell.skip_reason && selection.has(cell))
                                  skips.add(*cell.skip_reason, cell.index, count);
                              });
  log_groups(skips, "skipped");
}

void log_layer_failures(const Plan& plan, const Journal& journal) {
  FailureGroups failures;
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    const bool by_cell = std::ranges::any_of(plan.layer_records[l].cells, [&](std::size_t c) {
      return journal.state(c) == CellState::kFailed;
    });
    if (by_cell || journal.layer_state(l) != CellState::kFailed) continue;
    failures.add(journal.read_layer(l).value("reason", ""), l);
  }
  log_groups(failures, "records of whole layers failed",
             [&](std::size_t l) { return layer_record_path(plan, plan.layer_records[l]); });
}

}  // namespace kvbench
