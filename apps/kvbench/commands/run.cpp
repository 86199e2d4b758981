#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "cellfiles/kept_store.hpp"
#include "cellfiles/rows_file.hpp"
#include "cli/device_option.hpp"
#include "cli/memory_option.hpp"
#include "cli/signals.hpp"
#include "cli/sweep_options.hpp"
#include "cli/threads_option.hpp"
#include "commands.hpp"
#include "commands/repro.hpp"
#include "commands/show_plan.hpp"
#include "exit_codes.hpp"
#include "json/document.hpp"
#include "json/file_kind.hpp"
#include "metrics/metric_table.hpp"
#include "output/log.hpp"
#include "output/one_number.hpp"
#include "output/progress.hpp"
#include "output/results_table.hpp"
#include "output/run_reasons.hpp"
#include "results/journal.hpp"
#include "results/output_folder.hpp"
#include "results/provenance.hpp"
#include "results/results_file.hpp"
#include "run/cache_files.hpp"
#include "run/complete_heads.hpp"
#include "run/execute.hpp"
#include "run/memory_estimate.hpp"
#include "run/open_dumps.hpp"
#include "run/shard_selection.hpp"
#include "sweep/budget_notes.hpp"
#include "sweep/config.hpp"
#include "sweep/plan.hpp"
#include "sweep/row_notes.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/memory_limit.hpp"
#include "system/parallel.hpp"
#include "system/portable_path.hpp"

namespace kvbench {
namespace {

struct RunOptions {
  SweepOptions sweep;
  std::string out;
  std::string device = "auto";
  int threads = 0;
  std::string shard;
  bool fresh = false;
  bool add = false;
  bool anonymous = false;
  bool retry_failed = false;
  bool no_lock = false;
  std::uint64_t memory_limit = 0;
  bool quiet = false;
  bool dry_run = false;
  std::string print;  // path of a metric
  std::vector<std::string> argv;
  const std::vector<AlgorithmDescription>* algorithms = nullptr;
};

constexpr const char* kRunFooter =
    R"(DIR gets results.json, journal.jsonl (a line per finished cell), results.rows.h5 if the sweep asks
for rows, and sweep.json if the sweep is given by options. DIR belongs to one sweep, which may grow: a
run that lacks finished cells of DIR is refused without --fresh or --add; --add keeps an earlier
results.json as results-HASH.json. The same command resumes a run that was interrupted or killed.
Ctrl-C and SIGTERM lose only the cells in progress; a second Ctrl-C kills at once. With --shard i/n
each part needs a DIR of its own; `kvbench merge` joins them. DIR is locked while a run writes to it.
Exit codes: 0 done, 2 bad input, 3 failed cells, 5 interrupted or shards missing.
Parameters of methods are options too: `kvbench help h2o`, or all: `kvbench list parameters`.

Examples:
  kvbench run --config configs/quick.json
  kvbench run --config configs/quick.json --only 'subgen/*/*/*/*' --seeds 10 --out subgen
  kvbench run --config configs/quick.json --shard 2/3 --out quick-2-of-3
  kvbench run --config configs/quick.json --out quick-4 --threads 4 --memory-limit 8GiB
  kvbench run --dump data/smollm2-constitution.h5 --algorithm h2o,snapkv --memory 0.2,0.4 --out two)";

// The sweep as it was resolved, if it was given without a file; its paths start at its folder.
void write_sweep(const Plan& plan, const std::string& folder) {
  nlohmann::json sweep = plan.config;
  for (nlohmann::json& dump : sweep["dumps"]) {
    dump = portable_path(dump.get<std::string>(), folder);
  }
  AtomicFile file(folder + "/sweep.json");
  file.write(sweep.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  file.commit();
}

// Files that a run that starts over must not leave next to its new journal.
void remove_earlier_results(const std::string& folder) {
  KeptStore(folder + "/caches", KeptStore::Use::kRead).remove();
  for (const char* name : {"/results.json", "/results.rows.h5", "/results.rows.h5.journal"}) {
    std::error_code error;
    std::filesystem::remove(folder + name, error);
    if (error) throw IoError(write_error(folder + name, "remove", error.value()));
  }
}

// A sweep may replay the caches of an earlier run in its own folder.
void refuse_to_remove_caches(const Plan& plan, const std::string& folder) {
  const auto caches = std::filesystem::absolute(folder + "/caches").lexically_normal();
  for (const auto& cache : plan.caches) {
    if (std::filesystem::path(cache->path).parent_path() != caches) continue;
    throw InputError(
        cache->path +
        ": is replayed by this sweep, and --fresh would remove it; choose another --out");
  }
}

// Reports why cells are computed again: their values were in the file that was renamed.
void warn_of_damaged_rows(const RowsFile& rows, const std::string& path) {
  if (!rows.was_damaged()) return;
  log_text(
      "kvbench: warning: {}: is damaged and was renamed to {}.damaged; the per-row values in it "
      "are "
      "computed again\n",
      path, path);
}

void warn_of_unreadable_caches(const KeptStore& caches) {
  for (const std::string& message : caches.unreadable()) {
    log_text("kvbench: warning: {}; cells stored there will be recomputed\n", message);
  }
}

// Remains, from killed runs, of the files that this run writes; its lock keeps others from them.
void remove_unfinished_files(const std::string& folder) {
  for (const char* name : {"journal.jsonl", "sweep.json", "results.json", "results.rows.h5"}) {
    remove_unfinished(folder + "/" + name);
  }
}

void log_reused_folder(const Journal& journal, const std::string& folder, const std::string& kept) {
  if (!kept.empty()) {
    log_text("kvbench: note: the results of the earlier sweep are kept as {}\n", kept);
  } else if (journal.plan_changed()) {
    log_text("kvbench: note: {}: the sweep has changed; its finished cells are reused\n", folder);
  }
}

// Finished cells that are to be computed again, by what makes them so.
void log_recomputed(const Execution& execution) {
  const std::vector<bool> pending = pending_cells(execution);
  const auto log_count = [&](CellState state, const char* why) {
    std::size_t count = 0;
    for (std::size_t c = 0; c < pending.size(); ++c) {
      count += pending[c] && execution.journal.state(c) == state ? 1 : 0;
    }
    if (count > 0) log_text("{} of them are computed again: {}\n", count, why);
  };
  log_count(CellState::kOk,
            "their per-row values, what they kept, or the record of their layer is "
            "missing");
  log_count(CellState::kFailed, "they had failed");
  log_count(CellState::kSkipped, "they had been skipped and can be computed now");
}

void log_start(const Execution& execution, const std::string& folder) {
  const Plan& plan = execution.plan;
  const Journal& journal = execution.journal;
  const ShardSelection& selection = execution.selection;
  const std::size_t skipped = journal.count(CellState::kSkipped);
  log_text("{}: {} cells in {} groups{}, into {}\n", plan.name, plan.cells.size(),
           plan.groups.size(), skipped > 0 ? fmt::format(", {} skipped", skipped) : "", folder);
  if (!selection.shard.is_whole()) {
    log_text("shard {}: {} cells in {} groups\n", selection.shard.text(), selection.cells,
             std::count(selection.groups.begin(), selection.groups.end(), true));
    if (selection.cells == 0) {
      log_text(
          "kvbench: note: this shard has nothing to do: there are more shards than KV heads, or "
          "parts whose heads are computed together\n");
    }
  }
  if (journal.reused_cells() > 0) {
    log_text("{} cells already done\n", journal.reused_cells());
    log_recomputed(execution);
  }
  if (journal.foreign_cells() > 0) {
    log_text("ignoring {} cells of other sweeps (kept in the journal)\n", journal.foreign_cells());
  }
  if (journal.damaged_lines() > 0) {
    log_text("ignoring {} damaged journal lines; their cells are computed again\n",
             journal.damaged_lines());
  }
}

// Numbers of the selected cells.
struct Remaining {
  std::size_t missing = 0;
  std::size_t failed = 0;
  std::size_t missing_layers = 0;  // records of whole layers
  std::size_t failed_layers = 0;

  bool complete() const { return missing + missing_layers == 0; }
};

Remaining count_remaining(const Plan& plan, const ShardSelection& selection,
                          const Journal& journal) {
  Remaining remaining;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (!selection.has(plan.cells[c])) continue;
    if (journal.state(c) == CellState::kMissing) ++remaining.missing;
    if (journal.state(c) == CellState::kFailed) ++remaining.failed;
  }
  for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
    if (!selection.groups[plan.layer_records[l].group]) continue;
    if (journal.layer_state(l) == CellState::kMissing) ++remaining.missing_layers;
    if (journal.layer_state(l) == CellState::kFailed) ++remaining.failed_layers;
  }
  return remaining;
}

// If cells are missing, the table covers only the KV heads that are complete, so that all settings
// are compared on the same heads.
void log_table(const ResultsOutcome& outcome, const Plan& plan, const Journal& journal) {
  if (outcome.complete()) {
    if (const std::string table = results_table(outcome.settings, terminal_columns(stderr));
        !table.empty()) {
      log_block("\n" + table + "\n");
    }
    return;
  }
  if (outcome.ok == 0) return;
  const CompleteHeads heads = complete_heads(plan, journal);
  if (const std::string table = results_table(heads.settings, terminal_columns(stderr));
      !table.empty()) {
    log_block("\n" + table);
    log_text("\ncells are missing: the table covers the {} of {} KV heads that are complete\n",
             heads.complete, heads.all);
  } else {
    log_text(
        "\ncells are missing: no KV head is complete, so no table is printed (it would compare "
        "different heads)\n");
  }
}

int finish(const ResultsOutcome& outcome, const RunOptions& options, const Plan& plan,
           const ShardSelection& selection, const Journal& journal, const std::string& results) {
  if (!options.quiet) {
    log_table(outcome, plan, journal);
    log_text("{}: {} ok, {} failed, {} skipped, {} missing\n", results, outcome.ok, outcome.failed,
             outcome.skipped, outcome.missing);
    const ResultsOutcome::Layers& layers = outcome.layers;
    if (!plan.layer_records.empty()) {
      log_text("records of whole layers: {} ok, {} failed, {} skipped, {} missing\n", layers.ok,
               layers.failed, layers.skipped, layers.missing);
    }
    if (outcome.skipped > 0 && outcome.ok + outcome.failed + outcome.missing > 0)
      log_text("`kvbench plan` of the same sweep lists why cells were skipped\n");
  }
  if (outcome.ok + outcome.failed + outcome.missing == 0 && outcome.skipped > 0) {
    log_text("kvbench: warning: nothing was computed, every cell was skipped:\n");
    log_skips(plan, selection);
  }
  if (outcome.failed > 0) log_failures(plan, journal);
  if (outcome.layers.failed > 0) log_layer_failures(plan, journal);
  const Remaining remaining = count_remaining(plan, selection, journal);
  if (remaining.missing > 0) {
    log_text("kvbench: stopped with {} of {} cells missing; rerun the same command to resume\n",
             remaining.missing, selection.cells);
    return kExitIncomplete;
  }
  if (remaining.missing_layers > 0) {
    log_text(
        "kvbench: stopped with {} records of whole layers missing; rerun the same command to "
        "resume\n",
        remaining.missing_layers);
    return kExitIncomplete;
  }
  if (!options.quiet && !outcome.complete()) {
    log_text("shard {} is done; `kvbench merge` joins it with the others\n",
             selection.shard.text());
  }
  return remaining.failed + remaining.failed_layers > 0 ? kExitFailedCells : kExitDone;
}

void finish_rows(RowsFile& rows, const Plan& plan, bool complete) {
  const auto id_of = [&](std::size_t c) { return plan.cells[c].id.text(); };
  rows.finish(plan.cells.size(), id_of, complete);
}

// Settings whose cells have no cache file, and why.
void log_without_caches(const Plan& plan) {
  std::map<std::string, std::set<std::string>> settings;  // parameters by label and reason
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason) continue;
    const auto reason = no_cache_file(cell);
    if (reason) settings[*cell.label + ": " + *reason].insert(params_json(*cell.params).dump());
  }
  for (const auto& [text, of] : settings) {
    log_text("kvbench: note: output.caches leaves out {} setting{} of {}\n", of.size(),
             of.size() == 1 ? "" : "s", text);
  }
}

Json provenance_of(const RunOptions& options, const ComputeDevice& device) {
  Json out = provenance(options.argv);
  device.describe(out);
  return out;
}

// As many threads as are asked for, or as the system gives.
void start_threads_for(const RunOptions& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  const int wanted = thread_count();
  const int started = start_threads();
  if (started == wanted) return;
  log_text(
      "kvbench: warning: the system starts {} of {} threads, and the run goes on with those; raise "
      "the limit on processes (ulimit -u, pids.max of a container) or address space (ulimit -v) "
      "for more\n",
      started, wanted);
}

int run(const RunOptions& options) {
  start_threads_for(options);
  ComputeDevice device(options.device);
  SweepConfig config = read_sweep_options(options.sweep, *options.algorithms);
  OpenDumps dumps = open_dumps(config, {.memory_limit = options.memory_limit});
  if (!options.quiet) log_notes(dumps.notes);
  device.suit(dumps.planned);
  const auto memory_limit =
      static_cast<double>(options.memory_limit > 0 ? options.memory_limit : usable_memory());
  const Plan plan =
      make_plan(config, std::move(dumps.planned), options.sweep.only, device.name(), memory_limit);
  if (!options.quiet) {
    log_notes(notes_of_rows(plan));
    log_notes(notes_of_budgets(plan));
  }
  const ShardSelection selection = select_shard(plan, options.shard);
  if (!options.print.empty()) require_one_setting(plan, options.print);
  check_memory_limit(plan, selection.groups, thread_count(), memory_limit);

  const StopSignals signals;  // before there is a journal nothing is lost by ending at once
  const std::string folder = options.out.empty() ? "results/" + plan.name : options.out;
  const std::string results = folder + "/results.json";
  refuse_to_replace(results, WrittenKind::kResults);
  Journal journal(folder, plan, provenance_of(options, device),
                  {.fresh = options.fresh,
                   .add = options.add,
                   .shard = selection.shard.is_whole() ? "" : selection.shard.text(),
                   .anonymous = options.anonymous,
                   .no_lock = options.no_lock});
  remove_unfinished_files(folder);
  const std::string kept = options.add ? keep_other_results(results, plan) : "";
  if (options.fresh) {
    refuse_to_remove_caches(plan, folder);
    remove_earlier_results(folder);
  }
  if (!options.sweep.has_file()) write_sweep(plan, folder);
  std::unique_ptr<RowsFile> rows;
  if (plan.keep_rows) {
    const std::string path = folder + "/results.rows.h5";
    rows = std::make_unique<RowsFile>(path, row_columns());
    warn_of_damaged_rows(*rows, path);
  }

  std::unique_ptr<KeptStore> caches;
  if (plan.keep_caches) {
    caches = std::make_unique<KeptStore>(folder + "/caches", KeptStore::Use::kWrite);
    warn_of_unreadable_caches(*caches);
    if (!options.quiet) log_without_caches(plan);
  }

  const Execution execution{
      .plan = plan,
      .dumps = dumps.dumps,
      .journal = journal,
      .kernels = device.kernels(),
      .check_device = [&] { device.throw_if_failed(); },
      .rows = rows.get(),
      .caches = caches.get(),
      .selection = selection,
      .repro = [&](const PlannedCell& cell) { return repro_of(options.sweep, folder, cell); },
      .retry_failed = options.retry_failed,
      .layer_repro =
          [&](const PlannedLayerRecord& layer) {
            return repro_of(options.sweep, folder, plan, layer);
          },
      .memory_limit = memory_limit};
  if (!options.quiet) {
    log_reused_folder(journal, folder, kept);
    log_start(execution, folder);
  }
  work_has_begun = true;
  Progress progress(options.quiet);
  const auto timing = execute(execution, progress, StopSignals::stop());
  progress.end();
  journal.sync();
  const bool complete = count_remaining(plan, selection, journal).complete();
  if (rows) finish_rows(*rows, plan, complete);
  rows.reset();  // it knows every cell
  if (caches) caches->finish(cache_files(plan), complete);
  const int exit_code = finish(write_results(results, plan, journal, timing), options, plan,
                               selection, journal, results);
  if (!options.print.empty() && exit_code == kExitDone) {
    print_one_number(plan, journal, options.print);
  }
  return exit_code;
}

}  // namespace

Command add_run(CLI::App& app, std::vector<std::string> argv,
                const std::vector<AlgorithmDescription>& algorithms) {
  const auto options = std::make_shared<RunOptions>();
  options->argv = std::move(argv);
  options->algorithms = &algorithms;
  CLI::App* command =
      app.add_subcommand("run", "Run a sweep: replay every cell and write results.json");
  add_sweep_options(*command, options->sweep);
  command
      ->add_option("-o,--out", options->out, "Output folder; default: results/<name of the sweep>")
      ->type_name("DIR");
  add_device_option(*command, options->device);
  add_threads_option(*command, options->threads);
  CLI::Option* shard = add_shard_option(*command, options->shard);
  CLI::Option* fresh =
      command->add_flag("--fresh", options->fresh, "Start over: discard the cells in the folder");
  command
      ->add_flag("--add", options->add,
                 "Go on in the folder of another sweep; its results become results-HASH.json")
      ->excludes(fresh);
  command->add_flag("--retry-failed", options->retry_failed, "Compute failed cells once more");
  add_memory_limit(*command, options->memory_limit);
  command->add_flag("--no-lock", options->no_lock,
                    "Do not lock DIR; you must make sure that no other run writes there");
  command->add_flag("--anonymous", options->anonymous,
                    "Leave host, scheduler and the folders of paths out of results.json");
  command->add_flag("--quiet", options->quiet,
                    "No progress and no table; errors and warnings stay");
  command
      ->add_option("--print", options->print,
                   "Print the mean of this number; the sweep must have one setting")
      ->type_name("METRIC")
      ->excludes(shard);
  command->add_flag("--dry-run", options->dry_run,
                    "Show what the run would do, as `kvbench plan`; nothing is written");
  command->footer(kRunFooter);
  return {command, [options] {
            if (!options->dry_run) return run(*options);
            return show_plan({.sweep = options->sweep,
                              .device = options->device,
                              .shard = options->shard,
                              .threads = options->threads,
                              .memory_limit = options->memory_limit});
          }};
}

}  // namespace kvbench
