#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/device_option.hpp"
#include "cli/memory_option.hpp"
#include "cli/sweep_options.hpp"
#include "cli/threads_option.hpp"
#include "commands.hpp"
#include "commands/show_plan.hpp"
#include "compute_device.hpp"
#include "estimate/cost_estimate.hpp"
#include "exit_codes.hpp"
#include "output/log.hpp"
#include "output/plan_report.hpp"
#include "output/run_log.hpp"
#include "run/described_dump.hpp"
#include "run/memory_estimate.hpp"
#include "run/open_dumps.hpp"
#include "run/run_sweep.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr const char* kPlanFooter =
    R"(Memory is what the run needs at most: the plan, and one KV head at a time or, at the end, the
summary of results.json. Time is estimated for this machine and these dumps, without the load of
other programs: a few cells of each method are timed for about two seconds, on the first part of a
long sequence, and the rest is extrapolated. A longer part is timed only if the time allows it.
With --shape no dump is needed: its size is reported too, and random numbers are timed. Multiply-adds
are an upper bound, the same on every machine; --shard distributes the KV heads by them. Memory of a
setting is its memory.fraction, where shape and parameters decide it. Nothing is written. Parameters
of methods are options too: `kvbench help h2o`, or all: `kvbench list parameters`.

Examples:
  kvbench plan --config configs/quick.json
  kvbench plan --config configs/quick.json --shard 2/3
  kvbench plan --config configs/quick.json --only 'subgen/*/*/*/*' --json | jq '.cell_list[].id'
  kvbench plan --dump data/smollm2-constitution.h5 --algorithm h2o,snapkv --budget 256,512
  kvbench plan --shape 32x8x4x128x32768 --algorithm h2o,snapkv --memory 0.1)";

// Time budget of the cost estimate: the first, less what was spent before, but no less than the
// second.
constexpr double kMaxTrialSeconds = 2.0;
constexpr double kMinTrialSeconds = 1.0;

// The sweep on a dump that is described: the null device replaces its file, which nothing opens.
SweepOptions on_described_dump(SweepOptions sweep, const std::string& shape) {
  if (!sweep.dumps.empty()) throw InputError("--shape: --dump is given as well; give one of them");
  if (sweep.config.empty()) {
    sweep.dumps = {"/dev/null"};
    sweep.sets.push_back("/name=\"" + shape + "\"");
  } else {
    sweep.sets.emplace_back("/dumps=[\"/dev/null\"]");
  }
  return sweep;
}

OpenDumps described(const SweepConfig& config, const DumpShape& shape) {
  if (!config.paths_of<KeptCache>().empty()) {
    throw InputError("--shape: the sweep replays cache files, which are of a dump; give the dump");
  }
  if (!config.paths_of<Calibration>().empty()) {
    throw InputError(
        "--shape: the sweep names calibration files, which are of a model; give a dump");
  }
  OpenDumps out;
  out.planned.push_back(planned_dump(shape));
  return out;
}

}  // namespace

int show_plan(const PlanOptions& options) {
  if (options.threads > 0) set_thread_count(options.threads);
  const auto start = std::chrono::steady_clock::now();
  RunLog log(false);
  ComputeDevice device(options.device);
  const bool is_described = !options.shape.empty();
  const DumpShape shape = is_described ? read_dump_shape(options.shape) : DumpShape{};
  const SweepOptions sweep =
      is_described ? on_described_dump(options.sweep, options.shape) : options.sweep;
  RunRequest request{.sweep = read_sweep_options(sweep),
                     .source = source_of(sweep),
                     .device = device,
                     .only = sweep.only,
                     .shard = options.shard,
                     .memory_limit = options.memory_limit};
  const PlannedRun run = is_described ? plan_run(request, described(request.sweep, shape), log)
                                      : plan_run(request, log);
  try {
    check_memory_limit(run.plan, run.selection.groups, thread_count(), run.memory_limit);
  } catch (const InputError& error) {  // a run would end so; a plan says what it needs
    log_notes(error.messages());
  }
  const std::chrono::duration<double> opened = std::chrono::steady_clock::now() - start;
  CostEstimate cost =
      estimate_cost(run.plan, run.dumps, device.kernels(), run.selection,
                    std::max(kMaxTrialSeconds - opened.count(), kMinTrialSeconds), run.memory_limit,
                    is_described ? ReadStream(drawn_stream) : nullptr);
  cost.start_seconds = opened.count();
  if (is_described) cost.dump_bytes = dump_bytes(shape);
  const PlanReport report(run.plan, run.selection, cost, thread_count());
  if (options.json) {
    report.write_json(print_block);
  } else {
    print_block(report.table(terminal_columns(stdout)));
  }
  return kExitDone;
}

Command add_plan(CLI::App& app) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "Show what a run would do, without doing it");
  add_sweep_options(*command, options->sweep);
  add_device_option(*command, options->device);
  add_shard_option(*command, options->shard);
  add_threads_option(*command, options->threads);
  add_memory_limit(*command, options->memory_limit);
  command
      ->add_option("--shape", options->shape,
                   "In place of dumps: layers x KV heads x query heads per KV head x d x tokens")
      ->type_name("LxHxGxDxN");
  command->add_flag("--json", options->json, "One JSON document, with every cell's id and path");
  command->footer(kPlanFooter);
  return {command, [options] { return show_plan(*options); }};
}

}  // namespace kvbench
