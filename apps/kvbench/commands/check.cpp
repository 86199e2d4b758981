#include "check/check.hpp"

#include <fmt/core.h>

#include <memory>
#include <string>

#include "check/baseline.hpp"
#include "check/bounds.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/memory_limit.hpp"
#include "exit_codes.hpp"
#include "output/check_table.hpp"
#include "output/log.hpp"
#include "results/results_file.hpp"

namespace kvbench {
namespace {

struct CheckOptions {
  std::string results;
  std::string bounds;
  bool json = false;
  bool write_baselines = false;
};

constexpr const char* kFooter =
    R"(Prints a line per bound with what its verdict rests on, then a table of violations. Exit code 4
if there is one. A bound that matches no cell, a cell that failed and a metric that is null are
violations; vacuous and skipped cells are listed and never count as a bound that held.
The grammar of a bounds file, and what each kind of bound tests, is in configs/README.md.

Examples:
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json --json
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json --write-baselines)";

int run(const CheckOptions& options) {
  BoundsFile bounds;
  Json results;
  ErrorList errors;
  errors.gather(
      [&] { results = read_cells(options.results, static_cast<double>(usable_memory())); });
  errors.gather([&] { bounds = read_bounds(options.bounds); });
  errors.throw_if_any();
  if (options.write_baselines) {
    for (const auto& [path, cells] : write_baselines(bounds, results, options.results)) {
      log_text("{}: {} cells\n", path, cells);
    }
    return kExitDone;
  }
  const CheckReport report = check_bounds(bounds, results, options.results);
  if (options.json) {
    Json document = {{"results", options.results}, {"bounds_file", options.bounds}};
    document.update(report_json(report));
    print_json(document, 2);
  } else {
    print_block(check_table(report, terminal_columns(stdout)));
  }
  return report.passed() ? kExitDone : kExitViolation;
}

}  // namespace

Command add_check(CLI::App& app) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Check results against error and memory bounds");
  command->add_option("--results", options->results, "A results.json")
      ->type_name("FILE")
      ->required();
  command->add_option("--bounds", options->bounds, "A bounds file (JSON)")
      ->type_name("FILE")
      ->required();
  CLI::Option* json = command->add_flag("--json", options->json, "The whole report as JSON");
  command
      ->add_flag("--write-baselines", options->write_baselines,
                 "Check nothing; write the baselines that the bounds name from these results")
      ->excludes(json);
  command->footer(kFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
