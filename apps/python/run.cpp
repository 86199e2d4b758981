#include "python/run.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "compute_device.hpp"
#include "output/merge_log.hpp"
#include "output/run_log.hpp"
#include "python/interruptible.hpp"
#include "python/method.hpp"
#include "run/merge_folders.hpp"
#include "run/run_sweep.hpp"
#include "sweep/config.hpp"
#include "system/stop.hpp"

namespace nb = nanobind;

namespace kvbench::python {
namespace {

// Besides the log, calls progress(finished, total): first with 0, then after each cell.
class CallingLog : public RunLog {
 public:
  // `progress`: None, or a callable.
  CallingLog(bool quiet, const nb::object& progress) : RunLog(quiet), progress_(progress) {}

  void begin(std::size_t cells) override {
    RunLog::begin(cells);
    total_ = cells;
    call();
  }
  void cell_done() override {
    RunLog::cell_done();
    ++finished_;
    call();
  }

 private:
  void call() {
    if (progress_.is_none()) return;
    on_calling_thread([this] { progress_(finished_, total_); });
  }

  const nb::object& progress_;
  std::size_t finished_ = 0;
  std::size_t total_ = 0;
};

const char* state_name(const RunOutcome& outcome) {
  switch (outcome.state) {
    case RunOutcome::State::kDone:
      return "done";
    case RunOutcome::State::kFailedCells:
      return "failed_cells";
    case RunOutcome::State::kIncomplete:
      return "incomplete";
    case RunOutcome::State::kBroken:
      break;
  }
  std::rethrow_exception(outcome.error);
}

// The state of a run that ended: "done", "failed_cells" or "incomplete".
std::string run(const std::string& config, const std::string& out,
                const std::vector<std::string>& sets, const std::vector<std::string>& only,
                const std::string& shard, const std::string& device, int threads,
                std::uint64_t memory_limit, bool fresh, bool add, bool anonymous, bool retry_failed,
                bool quiet, const std::vector<std::string>& argv, const nb::object& progress,
                const Methods& methods) {
  const Algorithms algorithms(methods);
  std::string state;
  std::atomic<bool> stop{false};
  run_interruptible(
      [&] {
        CallingLog log(quiet, progress);
        start_run_threads(threads, log);
        ComputeDevice computes(device);
        RunRequest request{.sweep = read_sweep(config, sets, algorithms.all(), ErrorPolicy::kKeep),
                           .source = {.file = config, .sets = sets},
                           .device = computes,
                           .out = out,
                           .only = only,
                           .shard = shard,
                           .memory_limit = memory_limit,
                           .fresh = fresh,
                           .add = add,
                           .anonymous = anonymous,
                           .retry_failed = retry_failed,
                           .argv = argv};
        const PlannedRun planned = plan_run(request, log);
        state = state_name(run_sweep(request, planned, log, stop));
      },
      stop);
  return state;
}

// The state of what was merged, in the same words.
std::string merge(const std::vector<std::string>& folders, const std::string& out,
                  const Methods& methods) {
  const Algorithms algorithms(methods);
  MergeOutcome outcome;
  std::atomic<bool> stop{false};
  run_interruptible(
      [&] {
        const Stoppable stoppable(stop);
        MergeLog log;
        outcome =
            merge_folders({.folders = folders, .out = out, .algorithms = &algorithms.all()}, log);
        log_merged(out, outcome);
      },
      stop);
  if (!outcome.complete()) return "incomplete";
  return outcome.counts.failed + outcome.counts.layers.failed > 0 ? "failed_cells" : "done";
}

}  // namespace

void define_run(nb::module_& module) {
  module.def("run", &run, nb::arg("config"), nb::kw_only(), nb::arg("out"), nb::arg("sets"),
             nb::arg("only"), nb::arg("shard"), nb::arg("device"), nb::arg("threads"),
             nb::arg("memory_limit"), nb::arg("fresh"), nb::arg("add"), nb::arg("anonymous"),
             nb::arg("retry_failed"), nb::arg("quiet"), nb::arg("argv"), nb::arg("progress").none(),
             nb::arg("methods"));
  module.def("merge", &merge, nb::arg("folders"), nb::kw_only(), nb::arg("out"),
             nb::arg("methods"));
}

}  // namespace kvbench::python
