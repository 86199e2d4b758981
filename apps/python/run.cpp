#include "python/run.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compute_device.hpp"
#include "json/document.hpp"
#include "output/merge_log.hpp"
#include "output/run_log.hpp"
#include "python/interruptible.hpp"
#include "python/method.hpp"
#include "run/calibrate.hpp"
#include "run/execute.hpp"
#include "run/layer_journals.hpp"
#include "run/merge_folders.hpp"
#include "run/run_sweep.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"
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

// Writes a calibration file; its fingerprint.
std::string calibrate_method(const std::string& method, const std::string& params,
                             const std::vector<std::string>& dumps, const std::string& out,
                             const std::vector<std::string>& sequences,
                             const std::vector<int>& layers, Index tokens) {
  std::string fingerprint;
  std::atomic<bool> stop{false};
  run_interruptible(
      [&] {
        const Stoppable stoppable(stop);
        fingerprint =
            calibrate({method, params, dumps, sequences, layers, tokens, out})->fingerprint;
      },
      stop);
  return fingerprint;
}

using TensorHashList = std::vector<std::pair<std::string, std::string>>;  // by path

std::span<const std::byte> view_of(const nb::bytes& image) {
  return {reinterpret_cast<const std::byte*>(image.data()), image.size()};
}

// A sweep file's text without its comments. Throws InputError; `file` begins messages.
std::string plain_json(const std::string& text, const std::string& file) {
  ErrorList errors;
  const nlohmann::json document = parse_document(text, file, errors);
  errors.throw_if_any();
  return exact_line(document);
}

SweepConfig live_sweep(const std::string& sweep, const Algorithms& algorithms) {
  return resolved_sweep(nlohmann::json::parse(sweep), "kvbench.Recorder: sweep", algorithms.all());
}

// Throws InputError for errors of a sweep, and where layers cannot be measured one by one.
void check_layers(const std::string& sweep, const Methods& methods) {
  const Algorithms algorithms(methods);
  require_layer_by_layer(live_sweep(sweep, algorithms));
}

// Runs what the sweep asks of a layer, whose dump `image` holds nothing else. The state, the dump's
// fingerprint and the hashes of its tensors.
std::tuple<std::string, std::string, TensorHashList> run_layer(
    const std::string& sweep, const std::string& name, const nb::bytes& image,
    const std::string& sequence, int layer, const std::string& out, const std::string& source,
    const std::string& device, int threads, std::uint64_t memory_limit, bool fresh, bool add,
    bool retry_failed, const nb::object& progress, const Methods& methods) {
  const Algorithms algorithms(methods);
  const std::span<const std::byte> bytes = view_of(image);
  std::string state = "done";
  std::string fingerprint;
  TensorHashes hashes;
  std::atomic<bool> stop{false};
  run_interruptible(
      [&] {
        CallingLog log(true, progress);
        start_run_threads(threads, log);
        Dump dump(name, bytes);
        fingerprint = dump.fingerprint();
        hashes = dump.tensor_hashes();
        auto config = of_layer(live_sweep(sweep, algorithms), sequence, layer);
        if (!config) return;
        ComputeDevice computes(device);
        RunRequest request{.sweep = std::move(*config),
                           .source = {.file = source},
                           .device = computes,
                           .out = out,
                           .memory_limit = memory_limit,
                           .fresh = fresh,
                           .add = add,
                           .retry_failed = retry_failed,
                           .argv = {"kvbench.Recorder"}};
        const PlannedRun planned =
            plan_run(request, described(std::move(dump), request.sweep), log);
        state = state_name(run_sweep(request, planned, log, stop));
      },
      stop);
  return {state, fingerprint, {hashes.begin(), hashes.end()}};
}

// Takes over the records of layers before anything is computed; nothing is left to compute then.
class TakingLog : public CallingLog {
 public:
  // `layers`: journals with the fingerprints of their dumps.
  TakingLog(bool quiet, const nb::object& progress, const TensorHashList& layers)
      : CallingLog(quiet, progress), layers_(layers) {}

  void opened(const Execution& execution, const std::string& folder) override {
    for (const auto& [journal, fingerprint] : layers_) take_over(journal, fingerprint, execution);
    const std::vector<bool> pending = pending_cells(execution);
    const auto missing = std::count(pending.begin(), pending.end(), true);
    if (missing > 0) {
      throw BugError(std::to_string(missing) + " cells of layers that were measured are missing");
    }
    CallingLog::opened(execution, folder);
  }

 private:
  const TensorHashList& layers_;
};

// Writes the results of the dump whose layers were run: `image` has its attributes and shapes,
// `hashes` its tensors' hashes.
std::string finish_layers(const std::string& sweep, const std::string& name, const nb::bytes& image,
                          const TensorHashList& hashes, const TensorHashList& layers,
                          const std::string& out, const std::string& device,
                          std::uint64_t memory_limit, bool fresh, bool add, bool anonymous,
                          bool quiet, const std::vector<std::string>& argv,
                          const Methods& methods) {
  const Algorithms algorithms(methods);
  const std::span<const std::byte> bytes = view_of(image);
  const nb::object silent = nb::none();
  std::string state;
  std::atomic<bool> stop{false};
  run_interruptible(
      [&] {
        TakingLog log(quiet, silent, layers);
        Dump dump(name, bytes, {hashes.begin(), hashes.end()});
        ComputeDevice computes(device);
        RunRequest request{.sweep = live_sweep(sweep, algorithms),
                           .source = {},
                           .device = computes,
                           .out = out,
                           .memory_limit = memory_limit,
                           .fresh = fresh,
                           .add = add,
                           .anonymous = anonymous,
                           .argv = argv};
        const PlannedRun planned =
            plan_run(request, described(std::move(dump), request.sweep), log);
        state = state_name(run_sweep(request, planned, log, stop));
      },
      stop);
  return state;
}

}  // namespace

void define_run(nb::module_& module) {
  module.def("run", &run, nb::arg("config"), nb::kw_only(), nb::arg("out"), nb::arg("sets"),
             nb::arg("only"), nb::arg("shard"), nb::arg("device"), nb::arg("threads"),
             nb::arg("memory_limit"), nb::arg("fresh"), nb::arg("add"), nb::arg("anonymous"),
             nb::arg("retry_failed"), nb::arg("quiet"), nb::arg("argv"), nb::arg("progress").none(),
             nb::arg("methods"));
  module.def("plain_json", &plain_json, nb::arg("text"), nb::arg("file"));
  module.def("check_layers", &check_layers, nb::arg("sweep"), nb::arg("methods"));
  module.def("run_layer", &run_layer, nb::arg("sweep"), nb::kw_only(), nb::arg("name"),
             nb::arg("image"), nb::arg("sequence"), nb::arg("layer"), nb::arg("out"),
             nb::arg("source"), nb::arg("device"), nb::arg("threads"), nb::arg("memory_limit"),
             nb::arg("fresh"), nb::arg("add"), nb::arg("retry_failed"), nb::arg("progress").none(),
             nb::arg("methods"));
  module.def("finish_layers", &finish_layers, nb::arg("sweep"), nb::kw_only(), nb::arg("name"),
             nb::arg("image"), nb::arg("hashes"), nb::arg("layers"), nb::arg("out"),
             nb::arg("device"), nb::arg("memory_limit"), nb::arg("fresh"), nb::arg("add"),
             nb::arg("anonymous"), nb::arg("quiet"), nb::arg("argv"), nb::arg("methods"));
  module.def("calibrate", &calibrate_method, nb::arg("method"), nb::kw_only(), nb::arg("params"),
             nb::arg("dumps"), nb::arg("out"), nb::arg("sequences"), nb::arg("layers"),
             nb::arg("tokens"));
  module.def("merge", &merge, nb::arg("folders"), nb::kw_only(), nb::arg("out"),
             nb::arg("methods"));
}

}  // namespace kvbench::python
