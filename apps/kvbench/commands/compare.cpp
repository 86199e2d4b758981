#include "compare/compare.hpp"

#include <fmt/core.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/compare_table.hpp"
#include "output/incomplete_warning.hpp"
#include "output/log.hpp"
#include "results/layer_record.hpp"
#include "results/read_results.hpp"
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
  kvbench compare a.json b.json --tolerance 0.05 --metric errors.relative_l2.mean
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

// The rules of one kind of record: with the metrics of that kind alone.
CompareRules rules_of(const CompareRules& rules, bool layers) {
  CompareRules out = rules;
  std::erase_if(out.metrics,
                [&](const std::string& path) { return is_layer_metric(path) != layers; });
  return out;
}

// Cells, and where both files have them records of whole layers; what no metric speaks of is not
// compared.
struct Compared {
  std::optional<Comparison> cells;
  std::optional<Comparison> layers;

  bool passed() const { return (!cells || cells->passed()) && (!layers || layers->passed()); }
};

struct File {
  ComparedResults cells;
  ComparedResults layers;
};

// Both files are read, whatever is wrong with one of them or with the rules.
Compared compare(const CompareOptions& options) {
  ErrorList errors;
  check_rules(options.rules, errors);
  const CompareRules of_cells = rules_of(options.rules, false);
  const CompareRules of_layers = rules_of(options.rules, true);
  const auto metrics_of = [&](const CompareRules& rules) {
    return errors.none() ? rules.all_metrics() : std::vector<std::string>();
  };
  const auto read = [&](const std::string& path) {
    File file{ComparedResults(metrics_of(of_cells), path),
              ComparedResults(metrics_of(of_layers), path, "layers")};
    errors.gather([&] {
      const Json rest =
          read_results(path, {.cell = [&](Json&& cell) { file.cells.add(cell); },
                              .layer = [&](Json&& layer) { file.layers.add(layer); }});
      warn_if_incomplete(rest, path);
    });
    return file;
  };
  const File a = read(options.a);
  const File b = read(options.b);
  errors.throw_if_any();
  Compared compared;
  if (!of_cells.metrics.empty()) compared.cells = compare_results(a.cells, b.cells, of_cells);
  if (of_layers.metrics.empty()) return compared;
  const bool in_a = a.layers.size() > 0;
  const bool in_b = b.layers.size() > 0;
  if (in_a && in_b) {
    compared.layers = compare_results(a.layers, b.layers, of_layers);
  } else if (!compared.cells) {
    throw InputError(
        fmt::format("{}: has no records of whole layers to compare; run the sweep on a dump with "
                    "the output projection (wo) or evidence",
                    in_a ? options.b : options.a));
  } else if (in_a || in_b) {
    log_text("kvbench: note: only {} has records of whole layers; they are not compared\n",
             in_a ? options.a : options.b);
  }
  return compared;
}

int run(const CompareOptions& options) {
  const Compared compared = compare(options);
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
