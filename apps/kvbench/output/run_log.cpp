#include "output/run_log.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "output/log.hpp"
#include "output/results_table.hpp"
#include "output/run_reasons.hpp"
#include "run/complete_heads.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

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

void log_opened(const Execution& execution, const std::string& folder) {
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

// If cells are missing, the table covers only the KV heads that are complete, so that all settings
// are compared on the same heads.
void log_table(const ResultsOutcome& outcome, const Plan& plan, const CellRecords& records) {
  if (outcome.complete()) {
    if (const std::string table = results_table(outcome.settings, terminal_columns(stderr));
        !table.empty()) {
      log_block("\n" + table + "\n");
    }
    return;
  }
  if (outcome.ok == 0) return;
  const CompleteHeads heads = complete_heads(plan, records);
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

void log_counts(const Execution& execution, const RunOutcome& outcome) {
  const ResultsOutcome& counts = outcome.counts;
  log_table(counts, execution.plan, execution.journal);
  log_text("{}: {} ok, {} failed, {} skipped, {} missing\n", outcome.results, counts.ok,
           counts.failed, counts.skipped, counts.missing);
  const ResultsOutcome::Layers& layers = counts.layers;
  if (!execution.plan.layer_records.empty()) {
    log_text("records of whole layers: {} ok, {} failed, {} skipped, {} missing\n", layers.ok,
             layers.failed, layers.skipped, layers.missing);
  }
  if (counts.skipped > 0 && counts.ok + counts.failed + counts.missing > 0) {
    log_text("results.json says why each cell was skipped; `kvbench plan` of the sweep lists it\n");
  }
}

// Missing cells and records of the selection.
void log_missing(const Remaining& remaining, std::size_t cells) {
  if (remaining.missing > 0) {
    log_text("kvbench: stopped with {} of {} cells missing; rerun the same command to resume\n",
             remaining.missing, cells);
  } else {
    log_text(
        "kvbench: stopped with {} records of whole layers missing; rerun the same command to "
        "resume\n",
        remaining.missing_layers);
  }
}

}  // namespace

void RunLog::note(const std::string& text) {
  if (!quiet_) log_notes({text});
}

void RunLog::warning(const std::string& text) { log_text("kvbench: warning: {}\n", text); }

void RunLog::opened(const Execution& execution, const std::string& folder) {
  if (!quiet_) log_opened(execution, folder);
}

void RunLog::finished(const Execution& execution, const RunOutcome& outcome) {
  const Plan& plan = execution.plan;
  const ResultsOutcome& counts = outcome.counts;
  if (!quiet_) log_counts(execution, outcome);
  if (counts.ok + counts.failed + counts.missing == 0 && counts.skipped > 0) {
    log_text("kvbench: warning: nothing was computed, every cell was skipped:\n");
    log_skips(plan, execution.selection);
  }
  if (counts.failed > 0) log_failures(plan, execution.journal);
  if (counts.layers.failed > 0) log_layer_failures(plan, execution.journal);
  if (!outcome.remaining.complete()) {
    log_missing(outcome.remaining, execution.selection.cells);
  } else if (!quiet_ && !counts.complete()) {
    log_text("shard {} is done; `kvbench merge` joins it with the others\n",
             execution.selection.shard.text());
  }
}

void log_broken(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const IoError& each) {
    log_text("kvbench: {}\n", each.what());
    log_text("kvbench: finished cells are saved; rerun the same command to resume\n");
  } catch (const DeviceError& each) {
    log_text("kvbench: {}\n", each.what());
    log_text(
        "kvbench: finished cells are saved; rerun the same command to resume, or start over with "
        "--device cpu and a new --out\n");
  } catch (const std::system_error& each) {
    log_no_thread(each);
  }
}

void log_no_thread(const std::system_error& error) {
  log_text(
      "kvbench: cannot start a thread: {}; give fewer --threads, or raise the limit on "
      "processes (ulimit -u, pids.max of a container) or address space (ulimit -v)\n",
      error.code().message());
}

}  // namespace kvbench
