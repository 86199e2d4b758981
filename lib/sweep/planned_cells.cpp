#include "sweep/planned_cells.hpp"

#include <algorithm>
#include <utility>

namespace kvbench {

std::size_t PlannedCells::head_of(std::size_t cell) const {
  const auto next = std::upper_bound(
      heads_.begin(), heads_.end(), cell,
      [](std::size_t c, const PlannedHead& head) { return c < *head.cells.begin(); });
  return (next - heads_.begin()) - 1;
}

std::span<const PlannedHead> PlannedCells::heads(const CellRange& cells) const {
  if (cells.empty()) return {};
  const std::size_t first = head_of(*cells.begin());
  return std::span(heads_).subspan(first, head_of(*cells.end() - 1) - first + 1);
}

void PlannedCells::reserve(std::size_t cells) {
  ids_.reserve(cells);
  places_.reserve(cells);
}

std::size_t PlannedCells::add_setting(PlannedSetting setting) {
  settings_.push_back(std::move(setting));
  return settings_.size() - 1;
}

void PlannedCells::add(std::size_t group, int kv_head, std::size_t setting, std::size_t seed,
                       const Key128& id) {
  const std::size_t cell = ids_.size();
  if (heads_.empty() || heads_.back().group != group || heads_.back().kv_head != kv_head) {
    heads_.push_back({group, kv_head, CellRange(cell, cell)});
  }
  ids_.push_back(id);
  places_.emplace_back(setting, seed);
  heads_.back().cells = CellRange(*heads_.back().cells.begin(), cell + 1);
}

void PlannedCells::renumber_groups(const std::vector<std::size_t>& group) {
  for (PlannedHead& head : heads_) head.group = group[head.group];
}

}  // namespace kvbench
