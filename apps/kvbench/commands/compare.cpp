#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "compare/compare_files.hpp"
#include "exit_codes.hpp"
#include "output/compare_table.hpp"
#include "output/incomplete_warning.hpp"
#include "output/log.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

struct CompareOptions {
  std::string a;
  std::string b;
  CompareRules rules;
  bool json = false;
};

constexpr const char* kCompareFooter =
    R"(Cells are paired by their key without `device`: the same stream, algorithm, parameters and seed.
Per unit (sequence, layer, KV head) the mean over seeds is compared, and B/A is averaged over units
as a geometric mean with a 95 % interval (Student's t over texts, layers or KV heads, the outermost
that differs). A metric is WORSE if B/A is above 1 + tolerance and its interval does not reach below 1
or no unit is better; "unclear" if it is beyond the tolerance otherwise. Records of whole layers are
compared likewise, over units (sequence, layer), if both files have them. Exit code 4 if a metric or
memory is worse, or a number of A is null in B. Cells that only one file has are listed, not compared.

Examples:
  kvbench compare results/before/results.json results/after/results.json
  kvbench compare a.json b.json --tolerance 0.05 --metric errors.relative_frobenius_error
  kvbench compare cpu.json cuda.json --tolerance 1e-6 --json)";

void check_rules(const CompareRules& rules, ErrorList& errors) {
  for (const std::string& metric : rules.metrics) {
    if (const auto error = compared_metric_error(metric)) errors.add("--metric: " + *error);
  }
  if (!(rules.tolerance >= 0.0) || !std::isfinite(rules.tolerance)) {
    errors.add(fmt::format("--tolerance: must be a fraction >= 0, got {}", rules.tolerance));
  }
  if (!(rules.absolute_tolerance > 0.0) || !std::isfinite(rules.absolute_tolerance)) {
    errors.add(fmt::format("--absolute-tolerance: must be a number > 0, got {}",
                           rules.absolute_tolerance));
  }
}

int run(const CompareOptions& options) {
  ErrorList errors;
  check_rules(options.rules, errors);
  const ComparedFiles compared =
      compare_files(options.a, options.b, options.rules, errors, warn_if_incomplete);
  if (!compared.layers_only_in.empty()) {
    log_text("kvbench: note: only {} has records of whole layers; they are not compared\n",
             compared.layers_only_in);
  }
  const CompareRules of_layers = rules_of(options.rules, true);
  if (options.json) {
    Json document = {{"a", options.a}, {"b", options.b}};
    if (compared.cells) {
      document.update(comparison_json(*compared.cells, rules_of(options.rules, false)));
    }
    if (compared.layers) document["layers"] = comparison_json(*compared.layers, of_layers);
    document["passed"] = compared.passed();
    print_json(document, 2);
  } else {
    const std::size_t columns = terminal_columns(stdout);
    if (compared.cells) {
      print_block(compare_table(*compared.cells, rules_of(options.rules, false), columns));
    }
    if (compared.layers) {
      if (compared.cells) print_block("\n");
      print_block(compare_table(*compared.layers, of_layers, columns, kComparedLayers));
    }
  }
  return compared.passed() ? kExitDone : kExitViolation;
}

}  // namespace

Command add_compare(CLI::App& app) {
  const auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare", "Compare two results files cell by cell");
  command->add_option("A", options->a, "Baseline results.json, or its folder")->required();
  command->add_option("B", options->b, "Candidate results.json, or its folder")->required();
  command
      ->add_option("--tolerance", options->rules.tolerance,
                   "How much larger B may be, as a fraction of A")
      ->type_name("FRACTION")
      ->capture_default_str();
  command
      ->add_option("--absolute-tolerance", options->rules.absolute_tolerance,
                   "Values below this count as equal to it")
      ->type_name("VALUE")
      ->capture_default_str();
  command
      ->add_option(
          "--metric", options->rules.metrics,
          "Path of a number in a cell or in a record of a whole layer, repeatable; default: "
          "every error, by its mean")
      ->type_name("PATH")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "The whole comparison as JSON");
  command->footer(kCompareFooter);
  return {command, [options] {
            if (options->rules.metrics.empty()) {
              options->rules.metrics = CompareRules::default_metrics();
              for (std::string& path : CompareRules::default_layer_metrics()) {
                options->rules.metrics.push_back(std::move(path));
              }
            }
            return run(*options);
          }};
}

}  // namespace kvbench
