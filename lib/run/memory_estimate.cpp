#include "run/memory_estimate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
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

// What the cells of one KV head share: matrices and nets, and per token sums of every query head
// and two numbers more.
double shared_bytes(const Plan& plan, const PlannedGroup& group,
                    const std::vector<std::size_t>& cells) {
  const double per_token = 8.0 * static_cast<double>(group.shape.group + 2);
  std::map<WorkKey, double> pieces;
  for (const std::size_t c : cells) {
    const PlannedCell& cell = plan.cells[c];
    if (cell.scope) continue;
    for (const SharedWork& piece : cell.algorithm->shared_work(
             *cell.params, group.shape, group.prompt, cell.seed.value_or(0))) {
      pieces[piece.key()] = piece.bytes() + per_token * static_cast<double>(group.shape.tokens);
    }
  }
  double sum = 0.0;
  for (const auto& [key, bytes] : pieces) sum += bytes;
  return sum;
}

// What deciding for a whole model takes at most, `stream` bytes of another head's stream included.
double model_bytes(const Plan& plan, const PlannedGroup& group,
                   const std::vector<std::size_t>& cells, double stream) {
  double most = 0.0;
  for (const std::size_t c : cells) {
    const PlannedCell& cell = plan.cells[c];
    if (!cell.scope) continue;
    const auto heads = static_cast<Index>(cell.scope->layers.size() * cell.scope->kv_heads.size()) *
                       group.shape.group;
    const ModelWork work = cell.algorithm->model_work(*cell.params, cell.seed.value_or(0));
    most = std::max(most, stream + work.bytes(heads, group.prompt, group.shape.tokens));
  }
  return most;
}

}  // namespace

double estimate_memory_bytes(const Plan& plan, const PlannedGroup& group, int threads) {
  const StreamShape& shape = group.shape;
  const auto n = static_cast<double>(shape.tokens);
  const auto d = static_cast<double>(shape.d);
  const auto dv = static_cast<double>(shape.dv);
  const auto heads_per_group = static_cast<double>(shape.group);
  const auto scored = static_cast<double>(group.rows.size());

  std::map<int, std::vector<std::size_t>> cells_of_head;
  bool every_row = false;
  for (const std::size_t c : group.cells) {
    const PlannedCell& cell = plan.cells[c];
    if (cell.skip_reason) continue;
    cells_of_head[cell.kv_head].push_back(c);
    const Needs needs = cell.algorithm->needs(*cell.params);
    every_row = every_row || (needs.row_logits && !needs.held_only);
  }
  if (cells_of_head.empty()) return 0.0;
  const auto fullest = std::max_element(
      cells_of_head.begin(), cells_of_head.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto most_cells = static_cast<double>(fullest->second.size());

  const double visited =
      every_row ? n - static_cast<double>(std::max(group.prompt, shape.first_query)) : scored;
  const double stream =
      8.0 * (n * (d + dv) + heads_per_group * (n - static_cast<double>(shape.first_query)) * d);
  // Of the head at hand, and of the next one where it is read ahead.
  const double streams = (threads > 1 ? 2.0 : 1.0) * stream;
  const double reference = 8.0 * scored * (heads_per_group * (dv + 3.0) + 2.0);
  const double logits_of_row = 16.0 * heads_per_group * n;
  const double logits = std::min(visited * logits_of_row, std::max(kLogitBytes, logits_of_row));
  const double cell = 8.0 * scored * heads_per_group * (dv + kCellColumns) + kTokenBytes * n;
  const double at_work = std::min(most_cells, static_cast<double>(threads));
  // Keys and values as a kernel lays them out, or an algorithm gathers them.
  const double copies = at_work * 8.0 * n * (d + dv);
  const bool one_block = visited * logits_of_row <= kLogitBytes;
  const double begun = one_block ? at_work : most_cells;
  const double program = kProgramBytes + kPlannedCellBytes * static_cast<double>(plan.cells.size());
  return program + static_cast<double>(group.chunk_bytes) + streams + reference + logits + copies +
         begun * cell + shared_bytes(plan, group, fullest->second) +
         model_bytes(plan, group, fullest->second, stream);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024.0 && unit + 1 < std::size(units); ++unit) bytes /= 1024.0;
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

void check_memory_limit(const Plan& plan, const std::vector<bool>& groups, int threads,
                        double limit) {
  ErrorList faults;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!groups[g]) continue;
    const PlannedGroup& group = plan.groups[g];
    const double bytes = estimate_memory_bytes(plan, group, threads);
    if (bytes <= limit) continue;
    faults.add(fmt::format(
        "{}: sequence {}, layer {}: needs about {}, {} more than the limit of {}; choose fewer "
        "tokens (select.tokens), fewer rows (evaluate.rows), fewer --threads, or a higher "
        "--memory-limit",
        plan.dumps[group.dump].path, group.sequence, group.layer, bytes_text(bytes),
        bytes_text(bytes - limit), bytes_text(limit)));
  }
  faults.throw_if_any();
}

}  // namespace kvbench
