#include "check/check.hpp"

#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check/baseline.hpp"
#include "check/bounds.hpp"
#include "check/suggest.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/check_reports.hpp"
#include "output/incomplete_warning.hpp"
#include "output/log.hpp"
#include "results/cell_metric.hpp"
#include "results/layer_record.hpp"
#include "results/read_results.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

struct CheckOptions {
  std::string results;
  std::string bounds;
  std::string format = "table";
  bool json = false;
  bool write_baselines = false;
  std::string suggest;  // results of a second run
  std::vector<std::string> metrics;
};

constexpr const char* kCheckFooter =
    R"(Prints a line per bound with the numbers behind its verdict, then a table of violations. Exit code 4
if there is one. A bound that matches no cell, a cell that failed and a metric that is null are
violations; vacuous and skipped cells are listed and never count as a bound that held.
The grammar of a bounds file, and what each kind of bound tests, is in configs/README.md. --format
junit is for the test tables of CI services, --format markdown for their summaries.
--suggest prints a bounds file to begin with: per setting a limit above what two runs of the sweep reached,
by 4 standard deviations over seeds, without seeds by 10 times the difference between the runs. Review
it before you use it.

Examples:
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json --json
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json --write-baselines
  kvbench check --results results/ci/results.json --bounds configs/bounds/ci.json --format junit > kvbench.xml
  kvbench check --results first/results.json --suggest second/results.json > bounds.json)";

int suggest(const CheckOptions& options) {
  ErrorList errors;
  for (const std::string& metric : options.metrics) {
    if (const auto error = cell_metric_error(metric)) errors.add("--metric: " + *error);
  }
  BoundsSuggestion suggestion(errors.none() ? options.metrics : std::vector<std::string>());
  for (const std::string& path : {options.results, options.suggest}) {
    std::size_t index = 0;
    errors.gather([&] {
      const Json rest =
          read_results(path, {.cell = [&](Json&& cell) { suggestion.add(cell, index++, path); }});
      warn_if_incomplete(rest, path);
    });
  }
  errors.throw_if_any();
  for (const std::string& line : suggestion.left_out()) {
    log_text("kvbench: note: no bound for {}\n", line);
  }
  print_json(suggestion.bounds(), 1);
  return kExitDone;
}

int run(const CheckOptions& options) {
  if (!options.suggest.empty()) return suggest(options);
  BoundsFile bounds;
  std::optional<CheckedResults> results;
  ErrorList errors;
  errors.gather([&] { bounds = read_bounds(options.bounds); });
  errors.gather([&] { results.emplace(bounds, options.results); });
  errors.throw_if_any();
  if (options.write_baselines) {
    for (const auto& [path, cells] : write_baselines(bounds, *results)) {
      log_text("{}: {} cells\n", path, cells);
    }
    return kExitDone;
  }
  const CheckReport report = check_bounds(bounds, *results);
  print_check(report, options.json ? "json" : options.format, options.bounds, options.results);
  return report.passed() ? kExitDone : kExitViolation;
}

}  // namespace

Command add_check(CLI::App& app) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "Check results against error and memory bounds");
  command->add_option("--results", options->results, "A results.json, or its folder")
      ->type_name("FILE")
      ->required();
  CLI::Option* bounds = command->add_option("--bounds", options->bounds, "A bounds file (JSON)");
  bounds->type_name("FILE")->required();
  CLI::Option* format =
      command
          ->add_option("--format", options->format,
                       "table, json (the whole report), junit (XML of test cases), markdown")
          ->check(CLI::IsMember({"table", "json", "junit", "markdown"}))
          ->capture_default_str();
  CLI::Option* json =
      command->add_flag("--json", options->json, "As --format json")->excludes(format);
  CLI::Option* baselines =
      command
          ->add_flag("--write-baselines", options->write_baselines,
                     "Check nothing; write the baselines that the bounds name from these results")
          ->excludes(json)
          ->excludes(format)
          ->needs(bounds);
  CLI::Option* suggest =
      command
          ->add_option("--suggest", options->suggest,
                       "Check nothing; print bounds that --results and these of a second run hold")
          ->type_name("FILE")
          ->each([bounds](const std::string&) { bounds->required(false); })
          ->excludes(bounds)
          ->excludes(baselines)
          ->excludes(json)
          ->excludes(format);
  command
      ->add_option(
          "--metric", options->metrics,
          "With --suggest, a metric to bound, repeatable; default: errors.relative_frobenius_error")
      ->type_name("PATH")
      ->needs(suggest)
      ->allow_extra_args(false);
  command->footer(kCheckFooter);
  return {command, [options] {
            if (options->metrics.empty()) options->metrics = {"errors.relative_frobenius_error"};
            return run(*options);
          }};
}

}  // namespace kvbench
