#include "run/run_sweep.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "run/execute.hpp"
#include "run/memory_estimate.hpp"
#include "run/run_folder.hpp"
#include "sweep/budget_notes.hpp"
#include "sweep/make_plan.hpp"
#include "sweep/row_notes.hpp"
#include "system/error.hpp"
#include "system/memory_limit.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

void report_notes(const std::vector<std::string>& notes, RunObserver& observer) {
  for (const std::string& note : notes) observer.note(note);
}

// Tells the observer that no cell follows, also where an error ends the work.
class End {
 public:
  explicit End(RunObserver& observer) : observer_(observer) {}
  ~End() { observer_.end(); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

 private:
  RunObserver& observer_;
};

RunOutcome::State state_of(const Remaining& remaining) {
  if (!remaining.complete()) return RunOutcome::State::kIncomplete;
  return remaining.failed + remaining.failed_layers > 0 ? RunOutcome::State::kFailedCells
                                                        : RunOutcome::State::kDone;
}

// The work and what follows it; errors are the caller's.
RunOutcome compute(const Execution& execution, RunFolder& folder, RunObserver& observer,
                   std::atomic<bool>& stop) {
  const Plan& plan = execution.plan;
  const auto timing = [&] {
    const End end(observer);
    return execute(execution, observer, stop);
  }();
  folder.journal().sync();
  RunOutcome outcome;
  outcome.results = folder.results();
  outcome.remaining = count_remaining(plan, execution.selection, folder.journal());
  outcome.state = state_of(outcome.remaining);
  outcome.counts = folder.finish(plan, timing, outcome.remaining.complete());
  observer.finished(execution, outcome);
  return outcome;
}

RunOutcome broken(const RunFolder& folder) {
  RunOutcome outcome;
  outcome.state = RunOutcome::State::kBroken;
  outcome.results = folder.results();
  outcome.error = std::current_exception();
  return outcome;
}

}  // namespace

void start_run_threads(int wanted, RunObserver& observer) {
  if (wanted > 0) set_thread_count(wanted);
  const int expected = thread_count();
  const int started = start_threads();
  if (started == expected) return;
  observer.warning(fmt::format(
      "the system starts {} of {} threads, and the run goes on with those; raise the limit on "
      "processes (ulimit -u, pids.max of a container) or address space (ulimit -v) for more",
      started, expected));
}

PlannedRun plan_run(RunRequest& request, RunObserver& observer) {
  OpenDumps dumps = open_dumps(request.sweep, {.memory_limit = request.memory_limit});
  return plan_run(request, std::move(dumps), observer);
}

PlannedRun plan_run(RunRequest& request, OpenDumps dumps, RunObserver& observer) {
  report_notes(dumps.notes, observer);
  request.device.suit(dumps.planned);
  PlannedRun run;
  run.dumps = std::move(dumps.dumps);
  run.memory_limit = request.memory_limit > 0 ? request.memory_limit : usable_memory();
  run.plan = make_plan(request.sweep, std::move(dumps.planned), request.only, request.device.name(),
                       run.memory_limit);
  report_notes(notes_of_rows(run.plan), observer);
  report_notes(notes_of_evidence(run.plan), observer);
  report_notes(notes_of_budgets(run.plan), observer);
  run.selection = select_shard(run.plan, request.shard);
  return run;
}

RunOutcome run_sweep(const RunRequest& request, const PlannedRun& planned, RunObserver& observer,
                     std::atomic<bool>& stop) {
  const Plan& plan = planned.plan;
  check_memory_limit(plan, planned.selection.groups, thread_count(), planned.memory_limit);
  RunFolder folder(request, plan, planned.selection.shard, observer);
  const Execution execution{.plan = plan,
                            .dumps = planned.dumps,
                            .journal = folder.journal(),
                            .device = request.device,
                            .rows = folder.rows(),
                            .caches = folder.caches(),
                            .selection = planned.selection,
                            .source = request.source,
                            .folder = folder.path(),
                            .retry_failed = request.retry_failed,
                            .memory_limit = planned.memory_limit};
  observer.opened(execution, folder.path());
  try {
    return compute(execution, folder, observer, stop);
  } catch (const IoError&) {
    return broken(folder);
  } catch (const DeviceError&) {
    return broken(folder);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    return broken(folder);
  }
}

}  // namespace kvbench
