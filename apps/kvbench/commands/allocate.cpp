#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/byte_size.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/incomplete_warning.hpp"
#include "output/log.hpp"
#include "output/table.hpp"
#include "results/allocation.hpp"
#include "results/cell_metric.hpp"
#include "results/read_results.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

struct AllocateOptions {
  std::string results;
  AllocationRules rules;
};

constexpr const char* kAllocateFooter =
    R"(Reads results of one method crossed with storages, and prints a sweep in which each layer has the
storage that an exact knapsack chooses: no other choice within the bytes has a lower mean over layers
of the metric. A layer's bytes are memory.peak_bytes and memory.shared_bytes of its KV heads, added up;
the mean over texts and seeds counts. A storage that failed on a head is left out for its layer;
a layer without a choice is refused. The sweep has the KV heads of the results.
A table of the choice goes to stderr, with the best single storage within the bytes. Errors of layers
are added as if layers did not interact, and the choice is made on the texts that it saw: run the sweep
on others, with --set '/dumps=[..]', before you use it. Paths of dumps and of
calibration files are those of the results; write the sweep into the folder in which the first one was run.

Examples:
  kvbench run --dump data/smollm2-constitution.h5 --algorithm exact --storage q8_0,q4_0 --out out
  kvbench allocate out/results.json --bytes 1.75MiB > allocated.json
  kvbench run --config allocated.json --out results/allocated)";

void log_choice(const Allocation& allocation) {
  Table table({{"layer", Align::kRight},
               {"bytes", Align::kRight},
               {"error", Align::kRight},
               {"storage", Align::kLeft}});
  const auto total = [&](const std::vector<LayerChoice>& choices, const std::string& name) {
    table.add({"all", std::to_string(Allocation::bytes(choices)),
               fmt::format("{:.4g}", Allocation::loss(choices)), name});
  };
  for (const LayerChoice& choice : allocation.layers) {
    table.add({std::to_string(choice.layer), std::to_string(choice.bytes),
               fmt::format("{:.4g}", choice.loss), to_line(choice.storage)});
  }
  total(allocation.layers, "by layer");
  if (!allocation.uniform.empty()) {
    total(allocation.uniform, "single: " + to_line(allocation.uniform.front().storage));
  }
  log_block(table.text(terminal_columns(stderr)));
}

int run(const AllocateOptions& options) {
  if (const auto error = metric_error(options.rules.metric)) {
    throw InputError("--metric: " + *error);
  }
  if (!less_is_better(options.rules.metric)) {
    throw InputError("--metric: less of " + options.rules.metric + " is not better; name an error");
  }
  AllocationCells cells(options.rules);
  std::size_t index = 0;
  const Json rest = read_results(
      options.results,
      {.cell = [&](Json&& cell) { cells.add(cell, index++, options.results); }, .config = true});
  warn_if_incomplete(rest, options.results);
  const Allocation allocation = cells.allocated(rest, options.results);
  log_choice(allocation);
  print_json(allocation.sweep, 1);
  return kExitDone;
}

}  // namespace

Command add_allocate(CLI::App& app) {
  const auto options = std::make_shared<AllocateOptions>();
  CLI::App* command =
      app.add_subcommand("allocate", "Choose a storage per layer from measured errors");
  command->add_option("RESULTS", options->results, "A results.json, or its folder")->required();
  command
      ->add_option("--bytes", options->rules.bytes,
                   "Bytes of all layers together: 1000000, 1MB, 1MiB")
      ->transform(CLI::Validator(to_bytes, ""))
      ->type_name("SIZE")
      ->required();
  command
      ->add_option("--label", options->rules.label,
                   "The method, by its label without the storage; default: the only one")
      ->type_name("LABEL");
  command->add_option("--metric", options->rules.metric, "The error whose mean is least")
      ->type_name("PATH")
      ->capture_default_str();
  command->footer(kAllocateFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
