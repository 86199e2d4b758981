#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "check/check.hpp"
#include "commands.hpp"
#include "core/memory_limit.hpp"
#include "exit_codes.hpp"
#include "output/incomplete_warning.hpp"
#include "output/log.hpp"
#include "results/export_csv.hpp"
#include "results/export_markdown.hpp"
#include "results/results_file.hpp"

namespace kvbench {
namespace {

struct ExportOptions {
  std::string results;
  std::string format;
  bool layers = false;
};

constexpr const char* kFooter =
    R"(csv: one row per cell, every number in full (params.*, storage.*, derived.*, errors.*, trivial.*,
mass.*, evidence.*, clusters.*, memory.*, traffic.*, counters.*, timing.seconds); null is an empty field.
md: a Markdown table of the main columns, rounded. With --layers the same of the records of whole
layers, which results have of dumps with an output projection (wo) or evidence.

Examples:
  kvbench export --results results/quick/results.json --format csv > quick.csv
  kvbench export --results results/quick/results.json --format md)";

int run(const ExportOptions& options) {
  const Json results = read_cells(options.results, static_cast<double>(usable_memory()));
  require_cells(results, options.results);
  warn_if_incomplete(results, options.results);
  const auto write_to = [&](std::ostream& out) {
    if (options.layers) {
      options.format == "csv" ? export_layers_csv(results, out)
                              : export_layers_markdown(results, out);
    } else {
      options.format == "csv" ? export_csv(results, out) : export_markdown(results, out);
    }
  };
  if (terminal_columns(stdout) > 0) {
    std::ostringstream text;
    write_to(text);
    print_block(text.str());
  } else {  // values as they are
    write_to(std::cout);
    std::cout.flush();
  }
  return kExitDone;
}

}  // namespace

Command add_export(CLI::App& app) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand("export", "Write results as flat rows to stdout");
  command->add_option("--results", options->results, "A results.json")
      ->type_name("FILE")
      ->required();
  command->add_option("--format", options->format, "csv or md")
      ->required()
      ->check(CLI::IsMember({"csv", "md"}));
  command->add_flag("--layers", options->layers, "Records of whole layers in place of cells");
  command->footer(kFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
