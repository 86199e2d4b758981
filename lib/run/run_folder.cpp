#include "run/run_folder.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "json/document.hpp"
#include "json/file_kind.hpp"
#include "metrics/metric_table.hpp"
#include "results/output_folder.hpp"
#include "results/provenance.hpp"
#include "run/cache_files.hpp"
#include "sweep/cell_identity.hpp"
#include "system/error.hpp"
#include "system/file.hpp"
#include "system/portable_path.hpp"

namespace kvbench {
namespace {

// The sweep as it was resolved; its paths start at its folder.
void write_sweep(const Plan& plan, const std::string& folder) {
  nlohmann::json sweep = plan.config;
  for (nlohmann::json& dump : sweep["dumps"]) {
    dump = portable_path(dump.get<std::string>(), folder);
  }
  AtomicFile file(folder + "/sweep.json");
  file.write(indented(sweep, 1) + "\n");
  file.commit();
}

// A run that starts over leaves none of them next to its new journal.
void remove_earlier_results(const std::string& folder) {
  KeptStore(folder + "/caches", KeptStore::Use::kRead).remove();
  for (const char* name :
       {"results.json", "results.rows.h5", "results.rows.h5.journal", kFinishedFile}) {
    const std::string path = folder + "/" + name;
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) throw IoError(write_error(path, "remove", error.value()));
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

// Killed runs leave such files; the lock keeps other runs from writing them now.
void remove_unfinished_files(const std::string& folder) {
  for (const char* name :
       {"journal.jsonl", "sweep.json", "results.json", "results.rows.h5", kFinishedFile}) {
    remove_unfinished(folder + "/" + name);
  }
}

// Notes the settings whose cells have no cache file, and why.
void note_without_caches(const Plan& plan, RunObserver& observer) {
  std::map<std::string, std::set<std::string>> settings;  // parameters by label and reason
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason) continue;
    const auto reason = no_cache_file(cell);
    if (reason)
      settings[*cell.label + ": " + *reason].insert(exact_line(params_json(*cell.params)));
  }
  for (const auto& [text, of] : settings) {
    observer.note(fmt::format("output.caches leaves out {} setting{} of {}", of.size(),
                              of.size() == 1 ? "" : "s", text));
  }
}

Json provenance_of(const RunRequest& request) {
  Json out = provenance(request.argv);
  request.device.describe(out);
  return out;
}

}  // namespace

RunFolder::RunFolder(const RunRequest& request, const Plan& plan, const Shard& shard,
                     RunObserver& observer)
    : path_(request.out.empty() ? "results/" + plan.name : request.out) {
  refuse_to_replace(results(), WrittenKind::kResults);
  journal_ =
      std::make_unique<Journal>(path_, plan, provenance_of(request),
                                Journal::Options{.fresh = request.fresh,
                                                 .add = request.add,
                                                 .shard = shard.is_whole() ? "" : shard.text(),
                                                 .anonymous = request.anonymous,
                                                 .no_lock = request.no_lock});
  remove_unfinished_files(path_);
  const std::string kept =
      request.add && !journal_->finished() ? keep_other_results(results(), plan) : "";
  if (request.fresh) {
    refuse_to_remove_caches(plan, path_);
    remove_earlier_results(path_);
  }
  if (!request.source.has_file()) write_sweep(plan, path_);
  if (plan.keep_rows && !journal_->finished()) {
    const std::string path = path_ + "/results.rows.h5";
    rows_ = std::make_unique<RowsFile>(path, row_columns());
    if (rows_->was_damaged()) {
      observer.warning(
          fmt::format("{}: is damaged and was renamed to {}.damaged; the per-row values in it are "
                      "computed again",
                      path, path));
    }
  }
  if (plan.keep_caches) {
    caches_ = std::make_unique<KeptStore>(path_ + "/caches", KeptStore::Use::kWrite);
    for (const std::string& message : caches_->unreadable()) {
      observer.warning(message + "; cells stored there will be recomputed");
    }
    note_without_caches(plan, observer);
  }
  if (!kept.empty()) {
    observer.note("the results of the earlier sweep are kept as " + kept);
  } else if (journal_->plan_changed()) {
    observer.note(path_ + ": the sweep has changed; its finished cells are reused");
  }
}

ResultsOutcome RunFolder::finish(const Plan& plan,
                                 const std::vector<std::optional<GroupTiming>>& timing,
                                 bool complete) {
  if (rows_) {
    const auto id_of = [&](std::size_t c) { return plan.cells[c].id.text(); };
    rows_->finish(plan.cells.size(), id_of, complete);
  }
  rows_.reset();  // it knows every cell
  if (caches_) caches_->finish(cache_files(plan), complete);
  ResultsOutcome outcome;
  if (const auto& means = journal_->finished()) {
    outcome = count_results(*journal_);
    outcome.settings = *means;
  } else {
    outcome = write_results(results(), plan, *journal_, timing);
    if (complete) journal_->note_finished(outcome.settings);
  }
  return outcome;
}

}  // namespace kvbench
