#include "run/memory_estimate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/row_block.hpp"
#include "metrics/metric_table.hpp"
#include "replay/replay.hpp"
#include "replay/visited_rows.hpp"
#include "results/summary.hpp"
#include "run/layer_gatherer.hpp"
#include "run/shared_pieces.hpp"
#include "storage/written_logits.hpp"
#include "sweep/make_plan.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr double kStayingBytes = 256.0 * 1024 * 1024;
constexpr double kProgramBytes = 32.0 * 1024 * 1024;  // with its libraries
// A sketch row and its place in an algorithm's own lists.
constexpr double kTokenBytes = 64.0;
// A row of a cache, its places in the orders by which it comes and goes, and in the sketch.
constexpr double kRowBytes = 192.0;
// A setting in the plan, besides its parameters: a list of them grows by doubling.
constexpr double kSettingBytes = 2.0 * sizeof(PlannedSetting);
// A layer of a dump, in the plan and in the journal's header.
constexpr double kDumpLayerBytes = 2000.0;
// A record of a whole layer in the plan and in the journal's list, with the ids of a few KV heads.
constexpr double kLayerRecordBytes = 400.0;

// Numbers that a cell gathers per row and query head, besides the difference itself: one of each
// metric that has values per row, and the one that is being sorted.
double cell_columns() {
  const auto& metrics = all_metrics();
  return 1.0 + std::count_if(metrics.begin(), metrics.end(),
                             [](const Metric& metric) { return metric.of_row != nullptr; });
}

// Pieces that the cells of one KV head share: matrices and nets, and sums per token.
SharedPieces shared_pieces(const Plan& plan, const WorkGroup& group, const CellRange& cells) {
  SharedPieces pieces;
  plan.cells.for_each_to_run(cells, [&](const PlannedCell& cell, std::size_t count) {
    pieces.add(plan, group, cell, count);
  });
  return pieces;
}

// Vectors that the cell makes itself, in place of tokens' own.
double own_vectors_bytes(const PlannedCell& cell, const WorkGroup& group) {
  if (!cell.algorithm->makes_values(*cell.params) || !cell.algorithm->most_kept) return 0.0;
  const StreamShape& shape = group.shape;
  const auto most = cell.algorithm->most_kept(*cell.params, shape, group.prompt);
  const double tokens = most ? most->tokens : shape.reach();
  return tokens * (8.0 * (shape.d + shape.dv) + 2.0 * kVectorBytes);
}

// Bytes that cells of one KV head take by their algorithms' own account.
struct DeclaredMemory {
  Amounts held;
  Amounts working;  // at least keys and values as a kernel lays them out
};

DeclaredMemory declared_memory(const Plan& plan, const WorkGroup& group, const CellRange& cells) {
  const StreamShape& shape = group.shape;
  const double copy = 8.0 * (shape.tokens * (shape.d + shape.dv));
  DeclaredMemory all;
  plan.cells.for_each_to_run(cells, [&](const PlannedCell& cell, std::size_t cell_count) {
    const double count = cell_count;
    const CellMemory memory = cell.algorithm->memory(*cell.params, shape, group.prompt);
    all.held.emplace_back(memory.held + own_vectors_bytes(cell, group), count);
    all.working.emplace_back(std::max(copy, memory.working), count);
  });
  return all;
}

// Bytes that deciding for a whole scope takes at most, streams of other heads included.
double model_bytes(const Plan& plan, const WorkGroup& group, const CellRange& cells) {
  double most = 0.0;
  plan.cells.for_each_to_run(cells, [&](const PlannedCell& cell, std::size_t) {
    if (!cell.scope) return;
    const Index streams = cell.scope->layers.size() * cell.scope->kv_heads.size();
    const ScopeSize size{streams, group.shape.heads_per_kv, group.shape.d, group.prompt,
                         group.shape.tokens};
    const ModelWork work = cell.algorithm->model_work(*cell.params, cell.seed_or_zero());
    const Index at_once = streams_stay(group.shape, streams) ? streams : 1;
    most = std::max(most, at_once * stream_bytes(group.shape) + work.bytes(size));
  });
  return most;
}

// Bytes that storages make of a stream: decoded keys and values, and values besides decoded ones,
// of one storage at a time; where a cell's groups depend on what it holds, the same of each cell;
// and of each cell at work, logits of its decoded keys for the next rows.
double stored_bytes(const Plan& plan, const WorkGroup& group, const CellRange& cells, double logits,
                    int threads) {
  const double n = group.shape.tokens;
  const double d = group.shape.d;
  const double dv = group.shape.dv;
  double count = 0.0;
  std::map<const Storage*, double> by_storage;
  plan.cells.for_each_to_run(cells, [&](const PlannedCell& cell, std::size_t cell_count) {
    const double seeds = cell_count;
    count += seeds;
    if (cell.storage) by_storage[cell.storage.get()] += seeds * 8.0 * n * (d + 3.0 * dv + 3.0);
  });
  if (by_storage.empty()) return 0.0;
  const double shared = 8.0 * n * (d + 3.0 * dv) + logits;
  const double of_row = 8.0 * n * group.shape.heads_per_kv;
  const double ahead = of_row * WrittenLogits::rows_at_once(group.shape);
  double of_cells = 0.0;
  for (const auto& [storage, bytes] : by_storage) of_cells = std::max(of_cells, bytes);
  return shared + of_cells + ahead * std::min(count, static_cast<double>(threads));
}

// Bytes that cells hold of the caches that they replay: rows, and vectors as read and in the
// sketch.
double cache_bytes(const Plan& plan, const WorkGroup& group, const CellRange& cells) {
  double sum = 0.0;
  plan.cells.for_each_to_run(cells, [&](const PlannedCell& cell, std::size_t count) {
    for (const auto& [name, value] : cell.params->entries()) {
      const auto* file = std::get_if<CacheParameter>(&value);
      if (file == nullptr) continue;
      const KeptHead* head = file->content->find({group.sequence, group.layer, cell.kv_head});
      if (head == nullptr) continue;
      const double vectors = head->d + head->dv;
      sum += count * static_cast<double>(head->rows) * (kRowBytes + 16.0 * vectors);
    }
  });
  return sum;
}

// The program and its plan.
double program_bytes(const Plan& plan) {
  return kProgramBytes + kDumpLayerBytes * plan.dump_layers +
         plan_bytes(plan.cells.size(), plan.points) + kSettingBytes * plan.cells.settings().size() +
         kLayerRecordBytes * plan.layer_records.size();
}

// Counts that the summary keeps of one setting, taken along the plan, where the cells of a head are
// neighbours.
struct SettingSize {
  Index units = 0;
  Index cells = 0;
  Index seeds = 0;  // seeds of the fullest head
  Index of_head = 0;
  std::size_t group = 0;
  int kv_head = -1;

  void add(const PlannedCell& cell, Index count) {
    if (cell.group != group || cell.kv_head != kv_head) {
      ++units;
      of_head = 0;
    }
    cells += count;
    group = cell.group;
    kv_head = cell.kv_head;
    of_head += count;
    seeds = std::max(seeds, of_head);
  }
};

// Sizes of the plan's settings, where settings of the same parameters and storage are one.
std::vector<SettingSize> setting_sizes(const Plan& plan) {
  std::map<std::pair<const Params*, const Storage*>, std::size_t> place;
  std::vector<std::size_t> place_of;  // by setting of the plan
  for (const PlannedSetting& setting : plan.cells.settings()) {
    place_of.push_back(
        place.try_emplace({setting.params.get(), setting.storage.get()}, place.size())
            .first->second);
  }
  std::vector<SettingSize> sizes(place.size());
  plan.cells.for_each_to_run(CellRange(0, plan.cells.size()),
                             [&](const PlannedCell& cell, std::size_t count) {
                               sizes[place_of[cell.setting]].add(cell, count);
                             });
  return sizes;
}

// The KV head of a group with most cells to run.
struct FullestHead {
  CellRange cells;
  std::size_t to_run = 0;
  bool every_row = false;  // that a cell of the group visits
};

FullestHead fullest_head(const Plan& plan, const WorkGroup& group) {
  FullestHead fullest;
  for (const PlannedHead& head : plan.cells.heads(group.cells)) {
    std::size_t to_run = 0;
    plan.cells.for_each_to_run(head.cells, [&](const PlannedCell& cell, std::size_t count) {
      to_run += count;
      fullest.every_row =
          fullest.every_row || visits_every_row(cell.algorithm->needs(*cell.params));
    });
    if (to_run > fullest.to_run) {
      fullest.cells = head.cells;
      fullest.to_run = to_run;
    }
  }
  return fullest;
}

}  // namespace

double stream_bytes(const StreamShape& shape) {
  const double n = shape.tokens;
  const double d = shape.d;
  const double heads_per_kv = shape.heads_per_kv;
  const double repeated = shape.repeat ? (heads_per_kv + 1.0) * shape.repeat->rows() * d : 0.0;
  return 8.0 * (n * (d + shape.dv) + heads_per_kv * (n - shape.first_query) * d +
                (shape.wo_v_l1 ? heads_per_kv * n : 0.0) + repeated);
}

bool streams_stay(const StreamShape& shape, Index streams) {
  return streams * stream_bytes(shape) <= kStayingBytes;
}

double estimate_results_bytes(const Plan& plan) {
  const std::vector<SettingSize> settings = setting_sizes(plan);
  double cells = 0.0;
  double largest = 0.0;
  for (const SettingSize& setting : settings) {
    cells += setting.cells;
    largest = std::max(largest, Summary::entry_bytes(setting.units, setting.seeds, setting.cells));
  }
  const double layers = plan.layer_records.size();
  const double skipped = plan.cells.size() - cells;
  return program_bytes(plan) + Summary::setting_bytes() * static_cast<double>(settings.size()) +
         Summary::record_bytes() * (cells + layers) + Summary::lacking_bytes() * skipped +
         Summary::rows_bytes(cells, layers) + largest;
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
  const double n = shape.tokens;
  const double dv = shape.dv;
  const double heads_per_group = shape.heads_per_kv;
  const double scored = group.rows.size();

  const FullestHead fullest = fullest_head(plan, group);
  if (fullest.to_run == 0) return 0.0;
  const double most_cells = fullest.to_run;

  const double visited = visited_rows(shape, group.prompt, group.rows, fullest.every_row).size();
  // Streams of the current head, and of the next one if it is read ahead.
  const double streams = (threads > 1 ? 2.0 : 1.0) * stream_bytes(shape);
  const double reference = 8.0 * scored * (heads_per_group * (dv + 3.0) + 2.0);
  const double logits_of_row = BlockRoom::kBytes * heads_per_group * n;
  const double outputs = 8.0 * scored * heads_per_group * dv;
  const double cell = outputs + 8.0 * scored * heads_per_group * cell_columns() + kTokenBytes * n;
  const double at_work = std::min(most_cells, static_cast<double>(threads));
  const SharedPieces pieces = shared_pieces(plan, group, fullest.cells);
  const DeclaredMemory declared = declared_memory(plan, group, fullest.cells);
  // Shared work is computed before any cell works. The errors of a cell that ends are
  // scaled in a copy.
  const double working =
      std::max(pieces.scratch(threads), sum_of_largest(declared.working, at_work)) +
      at_work * outputs;
  // Logits, and cells that are under way besides them: all, where not all rows are there at once.
  const auto blocks_and_cells = [&](std::size_t cells) {
    const double most = most_logit_bytes(cells);
    const double logits = std::min(visited * logits_of_row, std::max(most, logits_of_row));
    const double all = cells;
    const double begun = visited * logits_of_row <= most ? std::min(all, at_work) : all;
    return logits + stored_bytes(plan, group, fullest.cells, logits, threads) + begun * cell +
           sum_of_largest(declared.held, begun);
  };
  // A run that resumes may have few cells left.
  const double rows_and_cells = std::max(blocks_and_cells(fullest.to_run),
                                         blocks_and_cells(std::min(fullest.to_run, kFewCells)));
  return program_bytes(plan) + group.chunk_bytes + streams + reference + rows_and_cells + working +
         pieces.bytes() + cache_bytes(plan, group, fullest.cells) +
         model_bytes(plan, group, fullest.cells) +
         LayerGatherer::bytes(group, std::min(layer_records, group.layer_records.size()), threads);
}

std::size_t layers_at_once(const Plan& plan, const WorkGroup& group, int threads, double limit) {
  const double one = estimate_memory_bytes(plan, group, threads, 1);
  const double more =
      LayerGatherer::bytes(group, 2, threads) - LayerGatherer::bytes(group, 1, threads);
  const std::size_t all = group.layer_records.size();
  if (more <= 0.0 || one + more * all <= limit) return std::max<std::size_t>(1, all);
  return limit <= one ? 1 : 1 + static_cast<std::size_t>((limit - one) / more);
}

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(units); ++unit) bytes /= 1024.0;
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
