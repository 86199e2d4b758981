#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/incomplete_warning.hpp"
#include "output/log.hpp"
#include "results/export_csv.hpp"
#include "results/export_jsonl.hpp"
#include "results/export_markdown.hpp"
#include "results/file_records.hpp"

namespace kvbench {
namespace {

struct ExportOptions {
  std::string results;
  std::string format;
  bool layers = false;
};

constexpr const char* kExportFooter =
    R"(csv: one row per cell, every number in full (params.*, storage.*, derived.*, errors.*, trivial.*,
mass.*, evidence.*, clusters.*, memory.*, traffic.*, counters.*, timing.seconds); null is an empty field.
jsonl: one JSON object per cell and line, flat, with the same columns as members; null is null.
md: a Markdown table of the main columns, rounded. Cells are read one by one, whatever their number.
--layers writes the records of whole layers instead, which exist for dumps with an output
projection (wo) or evidence.

Examples:
  kvbench export --results results/quick/results.json --format csv > quick.csv
  kvbench export --results results/quick/results.json --format jsonl > quick.jsonl
  kvbench export --results results/quick/results.json --format md)";

int run(const ExportOptions& options) {
  const FileRecords records(
      options.results, options.layers ? FileRecords::Kind::kLayers : FileRecords::Kind::kCells);
  warn_if_incomplete(records.rest(), options.results);
  const VisitRecords visit = [&](const auto& each) { records.visit(each); };
  const auto write_to = [&](std::ostream& out) {
    if (options.format == "csv") {
      export_csv(visit, out);
    } else if (options.format == "jsonl") {
      export_jsonl(visit, out);
    } else {
      options.layers ? export_layers_markdown(visit, out) : export_markdown(visit, out);
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
  command->add_option("--results", options->results, "A results.json, or its folder")
      ->type_name("FILE")
      ->required();
  command->add_option("--format", options->format, "csv, jsonl or md")
      ->required()
      ->check(CLI::IsMember({"csv", "jsonl", "md"}));
  command->add_flag("--layers", options->layers, "Records of whole layers in place of cells");
  command->footer(kExportFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
