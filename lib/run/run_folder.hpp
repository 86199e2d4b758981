// The output folder of a run: journal, per-row values, caches, sweep.json, results.json.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cellfiles/kept_store.hpp"
#include "cellfiles/rows_file.hpp"
#include "results/journal.hpp"
#include "results/results_file.hpp"
#include "run/run_observer.hpp"
#include "run/run_request.hpp"
#include "sweep/plan.hpp"
#include "sweep/shard.hpp"

namespace kvbench {

class RunFolder {
 public:
  // Creates the folder, locks it for the object's lifetime, and opens what a resumed run goes on
  // with; removes what killed runs left half-written and, if the request is `fresh`, earlier
  // results. Reports to the observer what was lost. Throws as Journal, and InputError if
  // results.json is another kind of file, or if `fresh` would remove caches that the sweep replays.
  RunFolder(const RunRequest& request, const Plan& plan, const Shard& shard, RunObserver& observer);

  const std::string& path() const { return path_; }
  std::string results() const { return path_ + "/results.json"; }
  Journal& journal() { return *journal_; }
  RowsFile* rows() { return rows_.get(); }       // null: none are kept, or none lack
  KeptStore* caches() { return caches_.get(); }  // null: the sweep keeps none

  // Writes results.rows.h5, the cache files and results.json from what was computed; not what a
  // finished run has left already. `complete`: nothing of the selection is missing. Throws IoError.
  ResultsOutcome finish(const Plan& plan, const std::vector<std::optional<GroupTiming>>& timing,
                        bool complete);

 private:
  std::string path_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<RowsFile> rows_;
  std::unique_ptr<KeptStore> caches_;
};

}  // namespace kvbench
