#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/device_option.hpp"
#include "cli/memory_option.hpp"
#include "cli/signals.hpp"
#include "cli/sweep_options.hpp"
#include "cli/threads_option.hpp"
#include "commands.hpp"
#include "commands/show_plan.hpp"
#include "compute_device.hpp"
#include "exit_codes.hpp"
#include "output/one_number.hpp"
#include "output/run_log.hpp"
#include "run/run_sweep.hpp"

namespace kvbench {
namespace {

struct RunOptions {
  SweepOptions sweep;
  std::string out;
  std::string device = "auto";
  int threads = 0;
  std::string shard;
  bool fresh = false;
  bool add = false;
  bool anonymous = false;
  bool retry_failed = false;
  bool no_lock = false;
  std::uint64_t memory_limit = 0;
  bool quiet = false;
  bool dry_run = false;
  std::string print;  // path of a metric
  std::vector<std::string> argv;
};

constexpr const char* kRunFooter =
    R"(DIR gets results.json, journal.jsonl (a line per finished cell), finished.jsonl (for a run that
finds nothing to do), results.rows.h5 if the sweep asks for rows, and sweep.json if the sweep is given
by options. DIR belongs to one sweep, which may grow: a run that lacks finished cells of DIR is refused
without --fresh or --add; --add keeps an earlier results.json as results-HASH.json. The same command
resumes a run that was interrupted or killed.
Ctrl-C and SIGTERM lose only the cells in progress; a second Ctrl-C kills at once. With --shard i/n
each part needs a DIR of its own; `kvbench merge` joins them. DIR is locked while a run writes to it.
Exit codes: 0 done, 2 bad input, 3 failed cells, 5 interrupted or shards missing.
Parameters of methods are options too: --budget 256,512 (`kvbench help h2o`, `kvbench list parameters`).

Examples:
  kvbench run --config configs/quick.json
  kvbench run --config configs/quick.json --only 'subgen/*/*/*/*' --seeds 10 --out subgen
  kvbench run --config configs/quick.json --shard 2/3 --out quick-2-of-3
  kvbench run --config configs/quick.json --out quick-4 --threads 4 --memory-limit 8GiB
  kvbench run --dump data/smollm2-constitution.h5 --algorithm h2o,snapkv --memory 0.2,0.4 --out two)";

// Prints one number, if asked for, once a run is done.
class PrintingLog : public RunLog {
 public:
  explicit PrintingLog(const RunOptions& options) : RunLog(options.quiet), metric_(options.print) {}

  void finished(const Execution& execution, const RunOutcome& outcome) override {
    RunLog::finished(execution, outcome);
    if (metric_.empty() || outcome.state != RunOutcome::State::kDone) return;
    print_one_number(execution.plan, execution.journal, metric_);
  }

 private:
  std::string metric_;
};

int exit_code_of(const RunOutcome& outcome) {
  using State = RunOutcome::State;
  if (outcome.state == State::kBroken) log_broken(outcome.error);
  if (outcome.state == State::kDone) return kExitDone;
  return outcome.state == State::kFailedCells ? kExitFailedCells : kExitIncomplete;
}

int run(const RunOptions& options) {
  PrintingLog log(options);
  start_run_threads(options.threads, log);
  ComputeDevice device(options.device);
  RunRequest request{.sweep = read_sweep_options(options.sweep),
                     .source = source_of(options.sweep),
                     .device = device,
                     .out = options.out,
                     .only = options.sweep.only,
                     .shard = options.shard,
                     .memory_limit = options.memory_limit,
                     .fresh = options.fresh,
                     .add = options.add,
                     .anonymous = options.anonymous,
                     .retry_failed = options.retry_failed,
                     .no_lock = options.no_lock,
                     .argv = options.argv};
  const PlannedRun planned = plan_run(request, log);
  if (!options.print.empty()) require_one_setting(planned.plan, options.print);
  const StopSignals signals;  // before there is a journal nothing is lost by ending at once
  return exit_code_of(run_sweep(request, planned, log, StopSignals::stop()));
}

}  // namespace

Command add_run(CLI::App& app, std::vector<std::string> argv) {
  const auto options = std::make_shared<RunOptions>();
  options->argv = std::move(argv);
  CLI::App* command =
      app.add_subcommand("run", "Run a sweep: replay every cell and write results.json");
  add_sweep_options(*command, options->sweep);
  command
      ->add_option("-o,--out", options->out, "Output folder; default: results/<name of the sweep>")
      ->type_name("DIR");
  add_device_option(*command, options->device);
  add_threads_option(*command, options->threads);
  CLI::Option* shard = add_shard_option(*command, options->shard);
  CLI::Option* fresh =
      command->add_flag("--fresh", options->fresh, "Start over: discard the cells in the folder");
  command
      ->add_flag("--add", options->add,
                 "Go on in the folder of another sweep; its results become results-HASH.json")
      ->excludes(fresh);
  command->add_flag("--retry-failed", options->retry_failed, "Compute failed cells once more");
  add_memory_limit(*command, options->memory_limit);
  command->add_flag("--no-lock", options->no_lock,
                    "Do not lock DIR; you must make sure that no other run writes there");
  command->add_flag("--anonymous", options->anonymous,
                    "Leave host, scheduler and the folders of paths out of results.json");
  command->add_flag("--quiet", options->quiet,
                    "No progress and no table; errors and warnings stay");
  command
      ->add_option("--print", options->print,
                   "Print the mean of this number; the sweep must have one setting")
      ->type_name("METRIC")
      ->excludes(shard);
  command->add_flag("--dry-run", options->dry_run,
                    "Show what the run would do, as `kvbench plan`; nothing is written");
  command->footer(kRunFooter);
  return {command, [options] {
            if (!options->dry_run) return run(*options);
            return show_plan({.sweep = options->sweep,
                              .device = options->device,
                              .shard = options->shard,
                              .threads = options->threads,
                              .memory_limit = options->memory_limit});
          }};
}

}  // namespace kvbench
