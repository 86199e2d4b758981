#include "verify/verify.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <system_error>

#include "cli/device_option.hpp"
#include "cli/memory_option.hpp"
#include "cli/signals.hpp"
#include "cli/threads_option.hpp"
#include "commands.hpp"
#include "compute_device.hpp"
#include "exit_codes.hpp"
#include "output/log.hpp"
#include "output/progress.hpp"
#include "output/verification_table.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

struct VerifyOptions {
  VerifyRequest request;
  std::string device = "auto";
  int threads = 0;
  bool quiet = false;
  bool json = false;
};

constexpr const char* kVerifyFooter =
    R"(Draws cells that are ok at random, computes them again from the dumps, and compares every number:
errors, memory, traffic, counters, derived values. Numbers must have the same bits if this program
and those of the results' provenance have one version, compiler and instruction set, else agree to
1e-9 (relative, and 1e-12 absolute). Exit code 4 if one differs. Dumps are known by their fingerprints,
so that --dump may name copies elsewhere; cells of dumps that are not named are not drawn. With k of N
cells wrong, n drawn cells all miss them with probability of about (1 - k/N)^n. The summary is made again
from all cells and records of whole layers of the file, and every number of it compared likewise. The
records of whole layers, and cells of methods written in Python, are not computed again; they are counted.
Nothing is written.

Examples:
  kvbench verify results/quick/results.json
  kvbench verify theirs.json --dump data/smollm2-constitution.h5 --sample 50 --seed 7)";

// Signals stop the computation alone; before and after it they end the program at once.
class StoppableProgress : public Progress {
 public:
  using Progress::Progress;
  void begin(std::size_t cells) override {
    signals_.emplace();
    Progress::begin(cells);
  }
  void end() override {
    Progress::end();
    signals_.reset();
  }

 private:
  std::optional<StopSignals> signals_;
};

// CLI11 takes RESULTS behind --dump for a further dump.
void tell_results_from_dumps(const CLI::Option& results, VerifyRequest& request) {
  if (results.count() > 0) return;
  const auto taken = std::ranges::find_if(request.dumps, [](const std::string& path) {
    std::error_code ignored;
    return path.ends_with(".json") || std::filesystem::is_directory(path, ignored);
  });
  if (taken == request.dumps.end()) {
    throw InputError("kvbench verify: RESULTS: is required; see `kvbench verify --help`");
  }
  request.results = *taken;
  request.dumps.erase(taken);
}

int run(const VerifyOptions& options) {
  const VerifyRequest& request = options.request;
  if (options.threads > 0) set_thread_count(options.threads);
  ComputeDevice device(options.device);
  StoppableProgress progress(options.quiet || options.json);
  const Verification verification = verify(request, device, progress, StopSignals::stop());
  if (options.json) {
    print_json(verification_json(request, verification), 2);
  } else {
    print_verification(request, verification);
  }
  if (!verification.agrees()) return kExitViolation;
  if (verification.complete()) return kExitDone;
  const std::size_t drawn = verification.sample.cells.size();
  log_text("kvbench: interrupted: {} of {} cells were not computed again\n",
           drawn - verification.verdict.computed, drawn);
  return kExitIncomplete;
}

}  // namespace

Command add_verify(CLI::App& app) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand(
      "verify",
      "Compute a random sample of the cells of results again, and the summary of all, and compare");
  CLI::Option* results =
      command->add_option("RESULTS", options->request.results, "A results.json, or its folder");
  command
      ->add_option("--dump", options->request.dumps,
                   "Dumps of the results, or globs of dumps; default: the recorded paths")
      ->type_name("DUMP");
  command
      ->add_option("--sample", options->request.sample, "Cells to draw; all if there are no more")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  CLI::Option* seed = command->add_option("--seed", options->request.seed,
                                          "Seed of the draw; default: a new one, which is printed");
  add_device_option(*command, options->device);
  add_threads_option(*command, options->threads);
  add_memory_limit(*command, options->request.memory_limit);
  command->add_flag("--quiet", options->quiet, "No progress");
  command->add_flag("--json", options->json, "The whole report as JSON");
  command->footer(kVerifyFooter);
  return {command, [options, results, seed] {
            tell_results_from_dumps(*results, options->request);
            if (seed->count() == 0) options->request.seed = std::random_device()();
            return run(*options);
          }};
}

}  // namespace kvbench
