#include "footprint.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace kvbench {
namespace {

// The engine holds logits and exponentials of so many rows that they stay below this, or of one.
constexpr double kLogitBytes = 256.0 * 1024 * 1024;
// Columns of numbers that a cell gathers per row and query head, beside the difference itself.
constexpr double kCellColumns = 12.0;
// The program, its libraries, and per cell of the plan its description.
constexpr double kProgramBytes = 32.0 * 1024 * 1024;
constexpr double kPlannedCellBytes = 512.0;
// A sketch row and its place in an algorithm's own lists.
constexpr double kTokenBytes = 64.0;

double visible_tokens(const StreamShape& shape, const std::vector<Index>& rows) {
  double sum = 0.0;
  for (const Index row : rows) sum += static_cast<double>(row - shape.first_visible(row) + 1);
  return sum;
}

}  // namespace

Footprint footprint(const Plan& plan, const PlannedGroup& group, int threads) {
  const StreamShape& shape = group.shape;
  const auto n = static_cast<double>(shape.tokens);
  const auto d = static_cast<double>(shape.d);
  const auto dv = static_cast<double>(shape.dv);
  const auto heads_per_group = static_cast<double>(shape.group);
  const auto scored = static_cast<double>(group.rows.size());

  std::map<int, double> cells_of_head;
  bool every_row = false;
  for (const std::size_t c : group.cells) {
    const PlannedCell& cell = plan.cells[c];
    if (cell.skip_reason) continue;
    cells_of_head[cell.kv_head] += 1.0;
    every_row = every_row || cell.algorithm->needs(*cell.params).row_logits;
  }
  Footprint out;
  if (cells_of_head.empty()) return out;
  double most_cells = 0.0;
  double all_cells = 0.0;
  for (const auto& [head, cells] : cells_of_head) {
    most_cells = std::max(most_cells, cells);
    all_cells += cells;
  }

  const double visited =
      every_row ? n - static_cast<double>(std::max(group.prompt, shape.first_query)) : scored;
  const double tensors =
      8.0 * (n * (d + dv) + heads_per_group * (n - static_cast<double>(shape.first_query)) * d);
  const double reference = 8.0 * scored * (heads_per_group * (dv + 3.0) + 2.0);
  const double logits_of_row = 16.0 * heads_per_group * n;
  const double logits = std::min(visited * logits_of_row, std::max(kLogitBytes, logits_of_row));
  const double cell = 8.0 * scored * heads_per_group * (dv + kCellColumns) + kTokenBytes * n;
  const bool one_block = visited * logits_of_row <= kLogitBytes;
  const double at_once =
      one_block ? std::min(most_cells, static_cast<double>(threads)) : most_cells;
  const double program = kProgramBytes + kPlannedCellBytes * static_cast<double>(plan.cells.size());
  out.bytes = program + tensors + reference + logits + at_once * cell;

  const double visible = heads_per_group * visible_tokens(shape, group.rows);
  out.multiply_adds = static_cast<double>(cells_of_head.size()) * visible * (2.0 * d + dv) +
                      all_cells * visible * dv;
  return out;
}

double usable_memory_bytes() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(path);
    double limit = 0.0;
    if (in >> limit && limit > 0.0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024.0 && unit + 1 < std::size(units); ++unit) bytes /= 1024.0;
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

void refuse_what_cannot_fit(const Plan& plan, const std::vector<bool>& share, int threads,
                            double limit) {
  std::vector<std::string> faults;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!share[g]) continue;
    const PlannedGroup& group = plan.groups[g];
    const double bytes = footprint(plan, group, threads).bytes;
    if (bytes <= limit) continue;
    faults.push_back(fmt::format(
        "{}: sequence {}, layer {}: needs about {}, {} more than the limit of {}; choose fewer "
        "tokens (select.tokens), fewer rows (evaluate.rows), fewer --threads, or a higher "
        "--memory-limit",
        plan.dumps[group.dump].path, group.sequence, group.layer, bytes_text(bytes),
        bytes_text(bytes - limit), bytes_text(limit)));
  }
  if (!faults.empty()) throw InputError(faults);
}

}  // namespace kvbench
