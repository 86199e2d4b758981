#include "results/merge.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cellfiles/kept_store.hpp"
#include "cellfiles/rows_file.hpp"
#include "cli/memory_option.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "json/file_kind.hpp"
#include "metrics/metric_table.hpp"
#include "output/log.hpp"
#include "results/output_folder.hpp"
#include "results/results_file.hpp"
#include "run/cache_files.hpp"
#include "run/memory_estimate.hpp"
#include "run/shard_selection.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/file_lock.hpp"
#include "system/memory_limit.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

struct MergeOptions {
  std::vector<std::string> folders;
  std::string out;
  bool no_lock = false;
  std::uint64_t memory_limit = 0;
  const std::vector<AlgorithmDescription>* algorithms = nullptr;
};

constexpr const char* kMergeFooter =
    R"(Reads journal.jsonl, and results.rows.h5 where the sweep keeps per-row values, of each folder, and
writes what one run of the whole sweep would have written; the dumps are not needed. FILE is put into
place at once; per-row values go next to it, to results.rows.h5 for results.json. Merges into one FILE
take turns. A FILE of another sweep and a folder in which a run works are refused. Journals of other
plans, also of the same sweep on another device, are refused. While cells are missing FILE is marked
incomplete, stderr lists them, and the exit code is 5: finish those shards, then merge again.

Examples:
  kvbench merge shard-1 shard-2 shard-3 --out results/mine/results.json
  kvbench merge results/mine/shards/* --out results/mine/results.json)";

constexpr std::size_t kMaxLines = 30;

// Per-row values are next to the results: all.json, all.rows.h5.
std::string rows_path(const std::string& results) {
  return fs::path(results).replace_extension(".rows.h5").string();
}

// Cells counted under a name, in the order in which the names came.
class Tally {
 public:
  void add(const std::string& name, const std::string& first) {
    const auto [place, is_new] = index_.emplace(name, lines_.size());
    if (is_new) lines_.push_back({name, first, 0});
    ++lines_[place->second].cells;
  }
  void list() const {
    for (std::size_t i = 0; i < lines_.size() && i < kMaxLines; ++i) {
      log_text("  {}: {} cells, first {}\n", lines_[i].name, lines_[i].cells, lines_[i].first);
    }
    if (lines_.size() > kMaxLines) {
      log_text("  and {} more\n", lines_.size() - kMaxLines);
    }
  }

 private:
  struct Line {
    std::string name, first;
    std::size_t cells;
  };
  std::vector<Line> lines_;
  std::map<std::string, std::size_t> index_;
};

std::string cell_name(const Plan& plan, const PlannedCell& cell) {
  return cell_path(plan, cell) + (cell.seed ? fmt::format(" seed {}", *cell.seed) : "") + " (" +
         cell.id.text() + ")";
}

void log_missing(const MergedJournals& merged) {
  const Plan& plan = merged.plan();
  const std::size_t missing = merged.count(CellState::kMissing);
  for (const std::string& folder : merged.absent()) {
    log_text("kvbench: {}: has no journal\n", folder);
  }
  if (missing == 0) return;
  PerHead<int> dealt;
  if (merged.shards() > 1) dealt = deal_shards(plan, merged.shards());
  std::map<int, Tally> by_shard;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (merged.state(c) != CellState::kMissing) continue;
    const PlannedCell& cell = plan.cells[c];
    const WorkGroup& group = plan.groups[cell.group];
    const int shard = dealt.empty() ? 0 : dealt[cell.group][static_cast<std::size_t>(cell.kv_head)];
    by_shard[shard].add(fmt::format("{}, sequence {}, layer {}", plan.dumps[group.dump].path,
                                    group.sequence, group.layer),
                        cell_name(plan, cell));
  }
  log_text("kvbench: {} of {} cells are missing:\n", missing, plan.cells.size());
  for (const auto& [shard, tally] : by_shard) {
    if (shard > 0) log_text(" of shard {}/{}\n", shard, merged.shards());
    tally.list();
  }
}

// Joins the per-row values; returns how many cells have none.
std::size_t merge_rows(const MergedJournals& merged, const std::string& path) {
  const Plan& plan = merged.plan();
  std::vector<std::optional<RowsReader>> readers;
  for (const std::string& folder : merged.folders()) {
    const std::string rows = folder + "/results.rows.h5";
    std::error_code ignored;
    const bool is_there = fs::exists(rows, ignored) || fs::exists(rows + ".journal", ignored);
    readers.push_back(is_there ? std::optional<RowsReader>(std::in_place, rows, row_columns())
                               : std::nullopt);
  }
  Tally without;
  std::size_t lost = 0;
  write_rows_file(path, row_columns(), [&](const AddCell& add) {
    for (std::size_t c = 0; c < plan.cells.size(); ++c) {
      if (merged.state(c) != CellState::kOk) continue;
      const PlannedCell& cell = plan.cells[c];
      // A cell that two folders have is taken from the one that has its rows, too.
      std::size_t from = merged.folder_of(c);
      for (std::size_t r = 0; r < readers.size() && !(readers[from] && readers[from]->has(cell.id));
           ++r) {
        if (readers[r] && readers[r]->has(cell.id)) from = r;
      }
      if (readers[from] && readers[from]->has(cell.id)) {
        add(cell.id, readers[from]->read(cell.id));
      } else {
        ++lost;
        without.add(merged.folders()[merged.folder_of(c)], cell_name(plan, cell));
      }
    }
  });
  if (lost > 0) {
    log_text("kvbench: {} finished cells have no per-row values:\n", lost);
    without.list();
  }
  return lost;
}

// Joins the cache files into the folder `caches` next to the results; returns how many cells have
// none.
std::size_t merge_caches(const MergedJournals& merged, const std::string& folder) {
  const Plan& plan = merged.plan();
  std::vector<std::unique_ptr<KeptStore>> stores;
  for (const std::string& from : merged.folders()) {
    stores.push_back(std::make_unique<KeptStore>(from + "/caches", KeptStore::Use::kRead));
    for (const std::string& message : stores.back()->unreadable()) {
      log_text("kvbench: warning: {}\n", message);
    }
  }
  const auto store_of = [&](const std::string& id) {
    return std::find_if(stores.begin(), stores.end(), [&](const auto& s) { return s->has(id); });
  };
  std::vector<CacheFile> files = cache_files(plan);
  std::size_t lost = 0;
  for (CacheFile& file : files) {
    std::erase_if(file.cells,
                  [&](const CacheCell& cell) { return store_of(cell.cell_id) == stores.end(); });
  }
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    const PlannedCell& cell = plan.cells[c];
    const bool expected = merged.state(c) == CellState::kOk && has_cache_file(cell);
    lost += expected && store_of(cell.id) == stores.end() ? 1 : 0;
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(write_error(folder, "create the folder", error.value()));
  write_cache_files(folder, files,
                    [&](const std::string& id) { return (*store_of(id))->read(id); });
  if (lost > 0) log_text("kvbench: {} finished cells are in no cache file\n", lost);
  return lost;
}

void refuse_folder(const std::string& out) {
  std::error_code ignored;
  if (fs::is_directory(out, ignored)) {
    throw InputError(out + ": is a folder; --out names a results file, such as " + out +
                     "/results.json");
  }
}

// Files that a merge writes, locked for it. Its folder is made, and removed again if nothing was
// written.
class Target {
 public:
  Target(const std::string& out, bool no_lock) : folder_(fs::absolute(out).parent_path()) {
    std::error_code error;
    for (fs::path each = folder_; !fs::exists(each, error); each = each.parent_path()) {
      made_.push_back(each);
    }
    fs::create_directories(folder_, error);
    if (error) {
      throw IoError(write_error(folder_.string(), "create the output folder", error.value()));
    }
    file_ = lock_written_file(
        out, no_lock, [&] { log_text("kvbench: another merge writes {}; waiting for it\n", out); });
    // Runs lock their folder; others than those of runs stay without that lock's file.
    if (fs::exists(folder_ / "journal.jsonl", error)) run_ = lock_run_folder(folder_, no_lock);
    remove_unfinished(out);
    remove_unfinished(rows_path(out));
  }
  ~Target() {
    file_.reset();
    std::error_code not_empty;
    for (const fs::path& each : made_) fs::remove(each, not_empty);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

 private:
  fs::path folder_;
  std::vector<fs::path> made_;  // the innermost first
  std::unique_ptr<FileLock> file_, run_;
};

constexpr const char* kOtherSweep = "choose another --out, or remove the file first";

int merge(const MergeOptions& options) {
  std::optional<MergedJournals> journals;
  ErrorList errors;
  errors.gather([&] {
    refuse_folder(options.out);
    refuse_to_replace(options.out, WrittenKind::kResults);
  });
  // Journals are read under the lock: of two merges the later one has what the earlier one had.
  std::optional<Target> target;
  if (errors.none()) errors.gather([&] { target.emplace(options.out, options.no_lock); });
  const auto memory_limit =
      static_cast<double>(options.memory_limit > 0 ? options.memory_limit : usable_memory());
  errors.gather([&] { journals.emplace(options.folders, *options.algorithms, memory_limit); });
  if (journals) {
    errors.gather([&] { refuse_other_results(options.out, journals->plan(), kOtherSweep); });
    errors.gather([&] { check_results_limit(journals->plan(), memory_limit); });
    errors.gather([&] {
      if (journals->plan().keep_rows) refuse_to_replace(rows_path(options.out), WrittenKind::kHdf5);
    });
  }
  errors.throw_if_any();
  const MergedJournals& merged = *journals;
  if (merged.damaged_lines() > 0) {
    log_text("kvbench: {} damaged journal lines are ignored\n", merged.damaged_lines());
  }
  if (!merged.differing_builds().empty()) {
    std::string names;
    for (const std::string& name : merged.differing_builds()) {
      names += (names.empty() ? "" : ", ") + name;
    }
    log_text(
        "kvbench: the runs that are merged differ in {}: values may differ in their last "
        "bits from those of one run (see provenance)\n",
        names);
  }
  const Plan& plan = merged.plan();
  std::vector<std::string> timed_by;
  for (const std::string& folder : merged.folders()) timed_by.push_back(folder + "/results.json");
  std::size_t lost = 0;
  if (plan.keep_rows) lost += merge_rows(merged, rows_path(options.out));
  if (plan.keep_caches) {
    lost += merge_caches(merged, fs::absolute(options.out).parent_path() / "caches");
  }
  const ResultsOutcome outcome =
      write_results(options.out, plan, merged,
                    std::vector<std::optional<GroupTiming>>(plan.groups.size()), timed_by);
  log_text("{}: {} ok, {} failed, {} skipped, {} missing, from {} folders\n", options.out,
           outcome.ok, outcome.failed, outcome.skipped, outcome.missing, merged.folders().size());
  if (outcome.layers.missing > 0) {
    log_text("kvbench: {} of {} records of whole layers are missing\n", outcome.layers.missing,
             plan.layer_records.size());
  }
  log_missing(merged);
  if (!outcome.complete() || lost > 0) {
    log_text(
        "kvbench: finish what is missing (kvbench run with --shard as before), then merge "
        "again\n");
    return kExitIncomplete;
  }
  return outcome.failed + outcome.layers.failed > 0 ? kExitFailedCells : kExitDone;
}

}  // namespace

Command add_merge(CLI::App& app, const std::vector<AlgorithmDescription>& algorithms) {
  const auto options = std::make_shared<MergeOptions>();
  options->algorithms = &algorithms;
  CLI::App* command = app.add_subcommand("merge", "Join the journals of shards into one result");
  command->add_option("DIR", options->folders, "Output folders of `kvbench run --shard`")
      ->required();
  command->add_option("-o,--out", options->out, "The results file to write")
      ->type_name("FILE")
      ->required();
  add_memory_limit(*command, options->memory_limit);
  command->add_flag(
      "--no-lock", options->no_lock,
      "Go on where the file system of FILE cannot lock files; you must then make sure "
      "that no other merge or run writes there");
  command->footer(kMergeFooter);
  return {command, [options] { return merge(*options); }};
}

}  // namespace kvbench
