#include "run/merge_folders.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "cellfiles/kept_store.hpp"
#include "cellfiles/rows_file.hpp"
#include "json/file_kind.hpp"
#include "metrics/metric_table.hpp"
#include "results/merge.hpp"
#include "results/output_folder.hpp"
#include "run/cache_files.hpp"
#include "run/memory_estimate.hpp"
#include "run/shard_selection.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/dump_paths.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/file_lock.hpp"
#include "system/memory_limit.hpp"

namespace kvbench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxItems = 30;
constexpr const char* kOtherSweepRemedy = "choose another --out, or remove the file first";

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
  std::vector<std::string> items() const {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < lines_.size() && i < kMaxItems; ++i) {
      out.push_back(
          fmt::format("{}: {} cells, first {}", lines_[i].name, lines_[i].cells, lines_[i].first));
    }
    if (lines_.size() > kMaxItems)
      out.push_back(fmt::format("and {} more", lines_.size() - kMaxItems));
    return out;
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

std::vector<MergeOutcome::MissingShard> missing_shards(const MergedJournals& merged) {
  const Plan& plan = merged.plan();
  if (merged.count(CellState::kMissing) == 0) return {};
  PerHead<int> dealt;
  if (merged.shards() > 1) dealt = deal_shards(plan, merged.shards());
  std::map<int, Tally> by_shard;
  for (std::size_t c = 0; c < plan.cells.size(); ++c) {
    if (merged.state(c) != CellState::kMissing) continue;
    const PlannedCell& cell = plan.cells[c];
    const WorkGroup& group = plan.groups[cell.group];
    const int shard = dealt.empty() ? 0 : dealt[cell.group][cell.kv_head];
    by_shard[shard].add(fmt::format("{}, sequence {}, layer {}", plan.dumps[group.dump].path,
                                    group.sequence, group.layer),
                        cell_name(plan, cell));
  }
  std::vector<MergeOutcome::MissingShard> missing;
  for (const auto& [shard, tally] : by_shard) missing.push_back({shard, tally.items()});
  return missing;
}

// Joins the per-row values; returns how many cells have none.
std::size_t merge_rows(const MergedJournals& merged, const std::string& path,
                       MergeObserver& observer) {
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
    observer.notice(fmt::format("{} finished cells have no per-row values:", lost),
                    without.items());
  }
  return lost;
}

// Joins the cache files into the folder `caches` next to the results; returns how many cells have
// none.
std::size_t merge_caches(const MergedJournals& merged, const std::string& folder,
                         MergeObserver& observer) {
  const Plan& plan = merged.plan();
  std::vector<std::unique_ptr<KeptStore>> stores;
  for (const std::string& from : merged.folders()) {
    stores.push_back(std::make_unique<KeptStore>(from + "/caches", KeptStore::Use::kRead));
    for (const std::string& message : stores.back()->unreadable()) observer.warning(message);
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
  if (lost > 0) observer.notice(fmt::format("{} finished cells are in no cache file", lost), {});
  return lost;
}

void refuse_folder(const std::string& out) {
  std::error_code ignored;
  if (fs::is_directory(out, ignored)) {
    throw InputError(out + ": is a folder; --out names a results file, such as " + out +
                     "/results.json");
  }
}

// The files that a merge writes, locked for it. Their folder is made, and removed again if nothing
// was written.
class Target {
 public:
  Target(const MergeRequest& request, MergeObserver& observer)
      : folder_(fs::absolute(request.out).parent_path()) {
    const std::string& out = request.out;
    std::error_code error;
    for (fs::path each = folder_; !fs::exists(each, error); each = each.parent_path()) {
      made_.push_back(each);
    }
    fs::create_directories(folder_, error);
    if (error) {
      throw IoError(write_error(folder_.string(), "create the output folder", error.value()));
    }
    file_ = lock_written_file(out, request.no_lock, [&] {
      observer.notice(fmt::format("another merge writes {}; waiting for it", out), {});
    });
    // Runs lock their folder; others than those of runs stay without that lock's file.
    if (fs::exists(folder_ / "journal.jsonl", error)) {
      run_ = lock_run_folder(folder_, request.no_lock);
    }
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

void report_journals(const MergedJournals& merged, MergeObserver& observer) {
  if (merged.damaged_lines() > 0) {
    observer.notice(fmt::format("{} damaged journal lines are ignored", merged.damaged_lines()),
                    {});
  }
  if (merged.differing_builds().empty()) return;
  std::string names;
  for (const std::string& name : merged.differing_builds()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  observer.notice(
      fmt::format("the runs that are merged differ in {}: values may differ in their last bits "
                  "from those of one run (see provenance)",
                  names),
      {});
}

}  // namespace

MergeOutcome merge_folders(const MergeRequest& request, MergeObserver& observer) {
  std::optional<MergedJournals> journals;
  ErrorList errors;
  errors.gather([&] {
    refuse_folder(request.out);
    refuse_to_replace(request.out, WrittenKind::kResults);
  });
  // Journals are read under the lock: of two merges the later one has what the earlier one had.
  std::optional<Target> target;
  if (errors.none()) errors.gather([&] { target.emplace(request, observer); });
  const double memory_limit = request.memory_limit > 0 ? request.memory_limit : usable_memory();
  errors.gather(
      [&] { journals.emplace(folders_named(request.folders), *request.algorithms, memory_limit); });
  if (journals) {
    errors.gather([&] { refuse_other_results(request.out, journals->plan(), kOtherSweepRemedy); });
    errors.gather([&] { check_results_limit(journals->plan(), memory_limit); });
    errors.gather([&] {
      if (journals->plan().keep_rows) refuse_to_replace(rows_path(request.out), WrittenKind::kHdf5);
    });
  }
  errors.throw_if_any();
  const MergedJournals& merged = *journals;
  report_journals(merged, observer);
  const Plan& plan = merged.plan();
  std::vector<std::string> timed_by;
  for (const std::string& folder : merged.folders()) timed_by.push_back(folder + "/results.json");
  MergeOutcome outcome;
  if (plan.keep_rows) outcome.lost += merge_rows(merged, rows_path(request.out), observer);
  if (plan.keep_caches) {
    outcome.lost +=
        merge_caches(merged, fs::absolute(request.out).parent_path() / "caches", observer);
  }
  outcome.counts =
      write_results(request.out, plan, merged,
                    std::vector<std::optional<GroupTiming>>(plan.groups.size()), timed_by);
  outcome.cells = plan.cells.size();
  outcome.layer_records = plan.layer_records.size();
  outcome.folders = merged.folders().size();
  outcome.absent = merged.absent();
  outcome.shards = merged.shards();
  outcome.missing = missing_shards(merged);
  return outcome;
}

}  // namespace kvbench
