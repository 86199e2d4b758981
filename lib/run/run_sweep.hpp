// A run of a sweep: from a request to results.json in its folder.
#pragma once

#include <atomic>
#include <exception>
#include <string>
#include <vector>

#include "results/results_file.hpp"
#include "run/open_dumps.hpp"
#include "run/remaining.hpp"
#include "run/run_observer.hpp"
#include "run/run_request.hpp"
#include "run/shard_selection.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// The cells of a request, before anything is written.
struct PlannedRun {
  std::vector<Dump> dumps;  // as plan.dumps
  Plan plan;
  ShardSelection selection;
  double memory_limit = 0.0;  // bytes
};

struct RunOutcome {
  enum class State {
    kDone,         // nothing of the selection is missing, and nothing failed
    kFailedCells,  // nothing is missing; cells or records of whole layers failed
    kIncomplete,   // stopped; the same request goes on
    kBroken        // `error` ended the work; finished cells are kept, the same request goes on
  };
  State state = State::kDone;
  std::string results;       // path of results.json; not written if kBroken
  ResultsOutcome counts;     // counts of the whole plan
  Remaining remaining;       // rest of the selection
  std::exception_ptr error;  // IoError, DeviceError, or std::system_error of a thread
};

// Starts the threads of the run, `wanted` or, if 0, as many as the process may use; warns if the
// system gives fewer. Throws as start_threads().
void start_run_threads(int wanted, RunObserver& observer);

// Opens the dumps of the request, whose sweep's dumps and caches are then set, and makes its plan.
// Notes are reported to the observer. Throws InputError.
PlannedRun plan_run(RunRequest& request, RunObserver& observer);
// The same on dumps that are opened.
PlannedRun plan_run(RunRequest& request, OpenDumps dumps, RunObserver& observer);

// Computes what the folder does not have of `planned`, and writes results.json. The folder is
// locked meanwhile and keeps the journal, results.rows.h5 and caches/ if the sweep asks for them,
// and sweep.json if the sweep came from no file. Ends early once `stop` is set.
//
// Throws InputError if the run is refused: too little memory, a folder of another sweep, a folder
// in which a run works; IoError if the folder cannot be written. Nothing was computed then. Later
// errors of files, device or threads are the outcome's; whatever else a cell throws is thrown.
RunOutcome run_sweep(const RunRequest& request, const PlannedRun& planned, RunObserver& observer,
                     std::atomic<bool>& stop);

}  // namespace kvbench
