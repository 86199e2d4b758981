#include "run/memory_estimate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "kernels/row_block.hpp"
#include "metrics/metric_table.hpp"
#include "replay/replay.hpp"
#include "replay/visited_rows.hpp"
#include "results/summary.hpp"
#include "run/layer_gatherer.hpp"
#include "storage/written_logits.hpp"

namespace kvbench {
namespace {

constexpr double kProgramBytes = 32.0 * 1024 * 1024;  // with its libraries
// A sketch row and its place in an algorithm's own lists.
constexpr double kTokenBytes = 64.0;
// A row of a cache, its places in the orders by which it comes and goes, and in the sketch.
constexpr double kRowBytes = 192.0;
// A record of a whole layer in the plan and in the journal's list, with the ids of a few KV heads.
constexpr double kLayerRecordBytes = 400.0;

// Numbers that a cell gathers per row and query head, beside the difference itself: one of each
// metric that has values per row, and the one that is being sorted.
double cell_columns() {
  const auto& metrics = all_metrics();
  return 1.0 + static_cast<double>(
                   std::count_if(metrics.begin(), metrics.end(),
                                 [](const Metric& metric) { return metric.of_row != nullptr; }));
}

// What the cells of one KV head share: matrices and nets, and per token sums of every query head
// and two numbers more.
double shared_bytes(const Plan& plan, const WorkGroup& group,
                    const std::vector<std::size_t>& cells) {
  const double per_token = 8.0 * static_cast<double>(group.shape.heads_per_kv + 2);
  std::map<WorkKey, double> pieces;
  for (const std::size_t c : cells) {
    const PlannedCell& cell = plan.cells[c];
    if (cell.scope) continue;
    for (const SharedWork& piece : cell.algorithm->shared_work(*cell.params, group.shape,
                                                               group.prompt, cell.seed_or_zero())) {
      pieces[piece.key()] = piece.bytes() + per_token * static_cast<double>(group.shape.tokens);
    }
  }
  double sum = 0.0;
  for (const auto& [key, bytes] : pieces) sum += bytes;
  return sum;
}

// What deciding for a whole scope takes at most, `stream` bytes of another head's stream included.
double model_bytes(const Plan& plan, const WorkGroup& group, const std::vector<std::size_t>& cells,
                   double stream) {
  double most = 0.0;
  for (const std::size_t c : cells) {
    const PlannedCell& cell = plan.cells[c];
    if (!cell.scope) continue;
    const auto streams =
        static_cast<Index>(cell.scope->layers.size() * cell.scope->kv_heads.size());
    const ScopeSize size{streams, group.shape.heads_per_kv, group.shape.d, group.prompt,
                         group.shape.tokens};
    const ModelWork work = cell.algorithm->model_work(*cell.params, cell.seed_or_zero());
    most = std::max(most, stream + work.bytes(size));
  }
  return most;
}

// What storages make of a stream: decoded keys and values, and values beside decoded ones, of one
// storage at a time; where a cell's groups depend on what it holds, the same of each cell; and of
// each cell at work, logits of its decoded keys for the next rows.
double stored_bytes(const Plan& plan, const WorkGroup& group, const std::vector<std::size_t>& cells,
                    double logits, int threads) {
  const bool any = std::any_of(cells.begin(), cells.end(),
                               [&](std::size_t c) { return plan.cells[c].storage != nullptr; });
  if (!any) return 0.0;
  const auto n = static_cast<double>(group.shape.tokens);
  const auto d = static_cast<double>(group.shape.d);
  const auto dv = static_cast<double>(group.shape.dv);
  const double shared = 8.0 * n * (d + 3.0 * dv) + logits;
  const double of_row = 8.0 * n * static_cast<double>(group.shape.heads_per_kv);
  const double ahead = of_row * static_cast<double>(WrittenLogits::rows_at_once(group.shape));
  double of_cells = 0.0;
  std::map<const Storage*, double> by_storage;
  for (const std::size_t c : cells) {
    const Storage* storage = plan.cells[c].storage.get();
    if (storage != nullptr) by_storage[storage] += 8.0 * n * (d + 3.0 * dv + 3.0);
  }
  for (const auto& [storage, bytes] : by_storage) of_cells = std::max(of_cells, bytes);
  return shared + of_cells +
         ahead * std::min(static_cast<double>(cells.size()), static_cast<double>(threads));
}

// What the cells that replay caches hold of them: rows, and vectors as read and in the sketch.
double cache_bytes(const Plan& plan, const WorkGroup& group,
                   const std::vector<std::size_t>& cells) {
  double sum = 0.0;
  for (const std::size_t c : cells) {
    const PlannedCell& cell = plan.cells[c];
    for (const auto& [name, value] : cell.params->entries()) {
      const auto* file = std::get_if<CacheParameter>(&value);
      if (file == nullptr) continue;
      const KeptHead* head = file->cache->find({group.sequence, group.layer, cell.kv_head});
      if (head == nullptr) continue;
      const auto vectors = static_cast<double>(head->d + head->dv);
      sum += static_cast<double>(head->rows) * (kRowBytes + 16.0 * vectors);
    }
  }
  return sum;
}

// The program and its plan.
double program_bytes(const Plan& plan) {
  return kProgramBytes +
         plan_bytes(static_cast<double>(plan.cells.size()), static_cast<double>(plan.points)) +
         kLayerRecordBytes * static_cast<double>(plan.layer_records.size());
}

// What the summary keeps of one setting, counted along the plan, where the cells of a head are
// neighbours.
struct SettingSize {
  Index units = 0;
  Index cells = 0;
  Index seeds = 0;  // of the fullest head
  Index of_head = 0;
  std::size_t group = 0;
  int kv_head = -1;

  void add(const PlannedCell& cell) {
    if (cell.group != group || cell.kv_head != kv_head) {
      ++units;
      of_head = 0;
    }
    ++cells;
    group = cell.group;
    kv_head = cell.kv_head;
    seeds = std::max(seeds, ++of_head);
  }
};

}  // namespace

double estimate_results_bytes(const Plan& plan) {
  std::map<std::pair<const Params*, const Storage*>, SettingSize> settings;
  double cells = 0.0;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason) continue;
    settings[{cell.params.get(), cell.storage.get()}].add(cell);
    cells += 1.0;
  }
  double largest = 0.0;
  for (const auto& [point, setting] : settings) {
    largest = std::max(largest, Summary::entry_bytes(static_cast<double>(setting.units),
                                                     static_cast<double>(setting.seeds),
                                                     static_cast<double>(setting.cells)));
  }
  const auto layers = static_cast<double>(plan.layer_records.size());
  return program_bytes(plan) + Summary::setting_bytes() * static_cast<double>(settings.size()) +
         Summary::record_bytes() * (cells + layers) + Summary::rows_bytes(cells, layers) + largest;
}

double estimate_peak_bytes(const Plan& plan, const std::vector<bool>& groups, int threads) {
  double most = estimate_results_bytes(plan);
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (groups[g]) most = std::max(most, estimate_memory_bytes(plan, plan.groups[g], threads));
  }
  return most;
}

double estimate_memory_bytes(const Plan& plan, const WorkGroup& group, int threads,
                             std::size_t layer_records) {
  const StreamShape& shape = group.shape;
  const auto n = static_cast<double>(shape.tokens);
  const auto d = static_cast<double>(shape.d);
  const auto dv = static_cast<double>(shape.dv);
  const auto heads_per_group = static_cast<double>(shape.heads_per_kv);
  const auto scored = static_cast<double>(group.rows.size());

  std::map<int, std::vector<std::size_t>> cells_of_head;
  bool every_row = false;
  for (const std::size_t c : group.cells) {
    const PlannedCell& cell = plan.cells[c];
    if (cell.skip_reason) continue;
    cells_of_head[cell.kv_head].push_back(c);
    every_row = every_row || visits_every_row(cell.algorithm->needs(*cell.params));
  }
  if (cells_of_head.empty()) return 0.0;
  const auto fullest = std::max_element(
      cells_of_head.begin(), cells_of_head.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto most_cells = static_cast<double>(fullest->second.size());

  const auto visited =
      static_cast<double>(visited_rows(shape, group.prompt, group.rows, every_row).size());
  const double stream =
      8.0 * (n * (d + dv) + heads_per_group * (n - static_cast<double>(shape.first_query)) * d +
             (shape.wo_v_l1 ? heads_per_group * n : 0.0) +
             (shape.repeat ? (heads_per_group + 1.0) * static_cast<double>(shape.repeat->rows()) * d
                           : 0.0));
  // Of the current head, and of the next one if it is read ahead.
  const double streams = (threads > 1 ? 2.0 : 1.0) * stream;
  const double reference = 8.0 * scored * (heads_per_group * (dv + 3.0) + 2.0);
  const double logits_of_row = static_cast<double>(BlockRoom::kBytes) * heads_per_group * n;
  const double cell = 8.0 * scored * heads_per_group * (dv + cell_columns()) + kTokenBytes * n;
  const double at_work = std::min(most_cells, static_cast<double>(threads));
  // Keys and values as a kernel lays them out, or an algorithm gathers them.
  const double copies = at_work * 8.0 * n * (d + dv);
  // Logits, and cells that are under way beside them: all, where not all rows are there at once.
  const auto blocks_and_cells = [&](std::size_t cells) {
    const auto most = static_cast<double>(most_logit_bytes(cells));
    const double logits = std::min(visited * logits_of_row, std::max(most, logits_of_row));
    const auto all = static_cast<double>(cells);
    const double begun = visited * logits_of_row <= most ? std::min(all, at_work) : all;
    return logits + stored_bytes(plan, group, fullest->second, logits, threads) + begun * cell;
  };
  // A run that resumes may have few cells left.
  const double rows_and_cells =
      std::max(blocks_and_cells(fullest->second.size()),
               blocks_and_cells(std::min(fullest->second.size(), kFewCells)));
  return program_bytes(plan) + static_cast<double>(group.chunk_bytes) + streams + reference +
         rows_and_cells + copies + shared_bytes(plan, group, fullest->second) +
         cache_bytes(plan, group, fullest->second) +
         model_bytes(plan, group, fullest->second, stream) +
         LayerGatherer::bytes(group, std::min(layer_records, group.layer_records.size()), threads);
}

std::size_t layers_at_once(const Plan& plan, const WorkGroup& group, int threads, double limit) {
  const double one = estimate_memory_bytes(plan, group, threads, 1);
  const double more =
      LayerGatherer::bytes(group, 2, threads) - LayerGatherer::bytes(group, 1, threads);
  const std::size_t all = group.layer_records.size();
  if (more <= 0.0 || one + more * static_cast<double>(all) <= limit)
    return std::max<std::size_t>(1, all);
  return limit <= one ? 1 : 1 + static_cast<std::size_t>((limit - one) / more);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024.0 && unit + 1 < std::size(units); ++unit) bytes /= 1024.0;
  return fmt::format("{:.3g} {}", bytes, units[unit]);
}

void check_results_limit(const Plan& plan, double limit) {
  const double bytes = estimate_results_bytes(plan);
  if (bytes <= limit) return;
  throw InputError(fmt::format(
      "{}: writing results.json of {} cells needs about {}, {} more than the limit of {}; choose "
      "fewer values of parameters or fewer seeds, or a higher --memory-limit",
      plan.name, plan.cells.size(), bytes_text(bytes), bytes_text(bytes - limit),
      bytes_text(limit)));
}

void check_memory_limit(const Plan& plan, const std::vector<bool>& groups, int threads,
                        double limit) {
  ErrorList errors;
  errors.gather([&] { check_results_limit(plan, limit); });
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!groups[g]) continue;
    const WorkGroup& group = plan.groups[g];
    const double bytes = estimate_memory_bytes(plan, group, threads, 1);
    if (bytes <= limit) continue;
    errors.add(fmt::format(
        "{}: sequence {}, layer {}: needs about {}, {} more than the limit of {}; choose fewer "
        "tokens (select.tokens), fewer rows (evaluate.rows), fewer --threads, or a higher "
        "--memory-limit",
        plan.dumps[group.dump].path, group.sequence, group.layer, bytes_text(bytes),
        bytes_text(bytes - limit), bytes_text(limit)));
  }
  errors.throw_if_any();
}

}  // namespace kvbench
