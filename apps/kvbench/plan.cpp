#include "plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compute_device.hpp"
#include "core/parallel.hpp"
#include "exit_codes.hpp"
#include "json/json.hpp"
#include "progress.hpp"
#include "run/cost_estimate.hpp"
#include "run/memory_estimate.hpp"
#include "run/multiply_adds.hpp"
#include "run/open_dumps.hpp"
#include "run/shard_selection.hpp"
#include "sweep/config.hpp"
#include "sweep/plan.hpp"
#include "sweep_options.hpp"

using namespace kvbench;

namespace {

struct PlanOptions {
  SweepOptions sweep;
  std::string device = "auto";
  std::string shard;
  int threads = 0;
  bool json = false;
};

constexpr const char* kFooter =
    R"(Memory is what one KV head at a time needs at most. Time is measured: for two seconds a few of the
cells are computed, as a run would, and the rest taken to be like them, so it holds for this machine,
these dumps and what else is running. Multiply-adds are an upper bound, the same on every machine; by
them --shard deals the groups. Nothing is written.

Examples:
  kvbench plan --config configs/quick.json
  kvbench plan --config configs/quick.json --shard 2/3
  kvbench plan --config configs/quick.json --only 'subgen/*/*/*/*' --json | jq '.cell_list[].id')";

std::size_t skipped_in(const Plan& plan, const PlannedGroup& group) {
  return static_cast<std::size_t>(
      std::count_if(group.cells.begin(), group.cells.end(),
                    [&](std::size_t c) { return plan.cells[c].skip_reason.has_value(); }));
}

// Skip reasons, most frequent first.
std::vector<std::pair<std::string, std::size_t>> skip_counts(const Plan& plan,
                                                             const ShardSelection& selection) {
  std::map<std::string, std::size_t> counts;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason && selection.has(cell)) ++counts[*cell.skip_reason];
  }
  std::vector<std::pair<std::string, std::size_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

// How long a plan may try cells to learn how long they take.
constexpr double kTrialSeconds = 2.0;

std::string time_text(double seconds) {
  return seconds < 10.0 ? fmt::format("{:.2g} s", seconds) : duration_text(seconds);
}

struct Totals {
  double bytes = 0.0;  // of the group that needs most: groups run one after another
  double multiply_adds = 0.0;
  std::size_t skipped = 0;
};

Json plan_json(const Plan& plan, const ShardSelection& selection, const CostEstimate& cost,
               int threads, Totals& totals) {
  Json groups = Json::array();
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!selection.groups[g]) continue;
    const PlannedGroup& group = plan.groups[g];
    const double bytes = estimate_memory_bytes(plan, group, threads);
    const double work = multiply_adds(plan, group);
    const std::size_t skipped = skipped_in(plan, group);
    totals.bytes = std::max(totals.bytes, bytes);
    totals.multiply_adds += work;
    totals.skipped += skipped;
    groups.push_back({{"dump", plan.dumps[group.dump].path},
                      {"sequence", group.sequence},
                      {"layer", group.layer},
                      {"tokens", group.shape.tokens},
                      {"prompt_tokens", group.prompt},
                      {"rows", group.rows.size()},
                      {"cells", group.cells.size()},
                      {"skipped", skipped},
                      {"memory_bytes", static_cast<std::int64_t>(bytes)},
                      {"seconds", cost.seconds[g]},
                      {"multiply_adds", work}});
  }
  return groups;
}

void print_json(const Plan& plan, const ShardSelection& selection, const CostEstimate& cost,
                const Json& groups, const Totals& totals) {
  Json document = {{"name", plan.name},
                   {"hash", plan.hash},
                   {"device", plan.device},
                   {"shard", selection.shard.text()},
                   {"cells", selection.cells},
                   {"skipped", totals.skipped},
                   {"memory_bytes", static_cast<std::int64_t>(totals.bytes)},
                   {"cost",
                    {{"seconds", cost.total()},
                     {"threads", thread_count()},
                     {"timed_cells", cost.cells},
                     {"multiply_adds", totals.multiply_adds}}},
                   {"groups", groups}};
  document["skips"] = Json::array();
  for (const auto& [reason, count] : skip_counts(plan, selection)) {
    document["skips"].push_back({{"reason", reason}, {"cells", count}});
  }
  document["config"] = plan.config;
  document["cell_list"] = Json::array();
  for (const PlannedCell& cell : plan.cells) {
    if (!selection.has(cell)) continue;
    Json entry = {{"id", cell.id}, {"path", cell_path(plan, cell)}};
    entry["seed"] = cell.seed ? Json(*cell.seed) : Json(nullptr);
    if (cell.skip_reason) entry["skip_reason"] = *cell.skip_reason;
    document["cell_list"].push_back(std::move(entry));
  }
  fmt::print("{}\n", document.dump(1, ' ', false, Json::error_handler_t::replace));
}

void print_table(const Plan& plan, const ShardSelection& selection, const CostEstimate& cost,
                 const Json& groups, const Totals& totals) {
  fmt::print("{}{}: {} cells in {} groups, {} skipped\n", plan.name,
             selection.shard.is_whole() ? "" : ", shard " + selection.shard.text(), selection.cells,
             groups.size(), totals.skipped);
  fmt::print("memory: about {}; time: about {} on {} threads, as {} cells that were tried took\n\n",
             bytes_text(totals.bytes), time_text(cost.total()), thread_count(), cost.cells);
  fmt::print("{:<12} {:>5} {:>8} {:>8} {:>6} {:>8} {:>8} {:>10} {:>12}\n", "sequence", "layer",
             "tokens", "prompt", "rows", "cells", "skipped", "memory", "time");
  for (const Json& group : groups) {
    fmt::print("{:<12} {:>5} {:>8} {:>8} {:>6} {:>8} {:>8} {:>10} {:>12}\n",
               group["sequence"].get<std::string>(), group["layer"].get<int>(),
               group["tokens"].get<Index>(), group["prompt_tokens"].get<Index>(),
               group["rows"].get<Index>(), group["cells"].get<Index>(),
               group["skipped"].get<Index>(), bytes_text(group["memory_bytes"].get<double>()),
               time_text(group["seconds"].get<double>()));
  }
  std::map<std::string, std::size_t> cells_of;
  std::vector<std::string> labels;
  for (const PlannedCell& cell : plan.cells) {
    if (!selection.has(cell)) continue;
    if (cells_of[cell.label]++ == 0) labels.push_back(cell.label);
  }
  fmt::print("\n{:<24} {:>8}\n", "label", "cells");
  for (const std::string& label : labels) fmt::print("{:<24} {:>8}\n", label, cells_of[label]);
  if (totals.skipped > 0) fmt::print("\nskipped:\n");
  for (const auto& [reason, count] : skip_counts(plan, selection))
    fmt::print("{:>8}  {}\n", count, reason);
}

int run(const PlanOptions& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  const auto start = std::chrono::steady_clock::now();
  const ComputeDevice device(options.device);
  const SweepConfig config =
      read_sweep(options.sweep.config, options.sweep.sets, all_algorithms(), FaultPolicy::kKeep);
  OpenDumps dumps = open_dumps(config);
  const Plan plan = make_plan(config, std::move(dumps.planned), options.sweep.only, device.name());
  Totals totals;
  const ShardSelection selection = select_shard(plan, options.shard);
  const std::chrono::duration<double> opened = std::chrono::steady_clock::now() - start;
  CostEstimate cost = estimate_cost(plan, dumps.dumps, device.kernels(), selection, kTrialSeconds);
  cost.start_seconds = opened.count();
  const Json groups = plan_json(plan, selection, cost, thread_count(), totals);
  if (options.json) {
    print_json(plan, selection, cost, groups, totals);
  } else {
    print_table(plan, selection, cost, groups, totals);
  }
  return kExitDone;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "Show what a run would do, without doing it");
  add_sweep_options(*command, options->sweep);
  add_device_option(*command, options->device);
  add_shard_option(*command, options->shard);
  command->add_option("--threads", options->threads, "Threads; default: all the process may use")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command->add_flag("--json", options->json, "One JSON document, with every cell's id and path");
  command->footer(kFooter);
  command->callback([options, &exit_code] { exit_code = run(*options); });
}
