#include "compare/compare.hpp"

#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "commands.hpp"
#include "core/error.hpp"
#include "exit_codes.hpp"
#include "output/compare_table.hpp"
#include "output/incomplete_warning.hpp"
#include "output/log.hpp"
#include "results/results_file.hpp"

namespace kvbench {
namespace {

struct CompareOptions {
  std::string a;
  std::string b;
  CompareRules rules;
  bool json = false;
};

constexpr const char* kFooter =
    R"(Cells are paired by their key without `device`: the same stream, algorithm, parameters and seed.
Per unit (sequence, layer, KV head) the mean over seeds is compared, and B/A is averaged over units
as a geometric mean with a 95 % interval (Student's t over texts, layers or KV heads, the outermost
that differs). A metric is WORSE if B/A is above 1 + tolerance and its interval does not reach below 1
or no unit is better; "unclear" if it is beyond the tolerance otherwise. Exit code 4 if a metric or memory is worse, or a number of A is null in B. Cells that
one file alone has are listed and decide nothing.

Examples:
  kvbench compare results/before/results.json results/after/results.json
  kvbench compare a.json b.json --tolerance 0.05 --metric errors.relative_l2.mean
  kvbench compare cpu.json cuda.json --tolerance 1e-6 --json)";

void check_rules(const CompareRules& rules, ErrorList& errors) {
  for (const std::string& metric : rules.metrics) {
    if (const auto error = compared_metric_error(metric)) errors.add("--metric: " + *error);
  }
  if (!(rules.tolerance >= 0.0) || !std::isfinite(rules.tolerance)) {
    errors.add(
        fmt::format("--tolerance: must be a fraction of at least 0, got {}", rules.tolerance));
  }
  if (!(rules.absolute_tolerance > 0.0) || !std::isfinite(rules.absolute_tolerance)) {
    errors.add(fmt::format("--absolute-tolerance: must be a number above 0, got {}",
                           rules.absolute_tolerance));
  }
}

// Both files are read, whatever is wrong with one of them or with the rules.
Comparison compare(const CompareOptions& options) {
  ErrorList errors;
  check_rules(options.rules, errors);
  const std::vector<std::string> metrics =
      errors.none() ? options.rules.all_metrics() : std::vector<std::string>();
  const auto read = [&](const std::string& path) {
    ComparedResults results(metrics, path);
    errors.gather([&] {
      warn_if_incomplete(read_results(path, [&](Json&& cell) { results.add(cell); }), path);
    });
    return results;
  };
  const ComparedResults a = read(options.a);
  const ComparedResults b = read(options.b);
  errors.throw_if_any();
  return compare_results(a, b, options.rules);
}

int run(const CompareOptions& options) {
  const Comparison comparison = compare(options);
  if (options.json) {
    Json document = {{"a", options.a}, {"b", options.b}};
    document.update(comparison_json(comparison, options.rules));
    print_json(document, 2);
  } else {
    print_block(compare_table(comparison, options.rules, terminal_columns(stdout)));
  }
  return comparison.passed() ? kExitDone : kExitViolation;
}

}  // namespace

Command add_compare(CLI::App& app) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "Compare two results files cell by cell");
  command->add_option("A", options->a, "Baseline results.json")->required();
  command->add_option("B", options->b, "Candidate results.json")->required();
  command
      ->add_option("--tolerance", options->rules.tolerance,
                   "How much larger B may be, as a fraction of A")
      ->type_name("SHARE")
      ->capture_default_str();
  command
      ->add_option("--absolute-tolerance", options->rules.absolute_tolerance,
                   "Values below this count as equal to it")
      ->type_name("VALUE")
      ->capture_default_str();
  command
      ->add_option("--metric", options->rules.metrics,
                   "Path of a number in a cell, repeatable; default: every error, by its mean")
      ->type_name("PATH")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "The whole comparison as JSON");
  command->footer(kFooter);
  return {command, [options] {
            if (options->rules.metrics.empty())
              options->rules.metrics = CompareRules::default_metrics();
            return run(*options);
          }};
}

}  // namespace kvbench
