#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/list_text.hpp"
#include "output/log.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

struct ListOptions {
  std::string what;
  std::vector<std::string> names;
  bool json = false;
  bool markdown = false;
};

constexpr const char* kListFooter =
    R"(WHAT:
  algorithms      with their parameters, of all or of the named ones
  parameters      of all algorithms, by name
  storage         codecs of the cache
  metrics         of a cell and of a whole layer
  derived         further numbers that algorithms report of a cell
  devices         that were built, and why others cannot be used
configs/RESULTS.md defines the symbols of metrics, and every other number of results.json.

Examples:
  kvbench list algorithms
  kvbench list algorithms h2o snapkv
  kvbench list algorithms --markdown
  kvbench list algorithms --json | jq '.[] | select(.id == "subgen").parameters'
  kvbench list parameters
  kvbench list storage kivi fp8_e4m3
  kvbench list metrics
  kvbench list derived
  kvbench list devices)";

int run(const ListOptions& options) {
  const bool has_names = options.what == "algorithms" || options.what == "storage";
  if (!options.names.empty() && (!has_names || options.markdown)) {
    throw InputError(
        "kvbench list: names are of algorithms or codecs, without --markdown; leave them out");
  }
  const Listed& listed = *std::ranges::find_if(
      all_listed(), [&](const Listed& each) { return each.what == options.what; });
  if (options.markdown) {
    if (listed.as_markdown == nullptr) {
      throw InputError(fmt::format(
          "kvbench list: {} have no --markdown; leave it out, or use --json", options.what));
    }
    listed.as_markdown();
  } else if (options.json) {
    print_json(listed.as_json(options.names), 1);
  } else {
    listed.as_text(options.names);
  }
  return kExitDone;
}

}  // namespace

Command add_list(CLI::App& app) {
  const auto options = std::make_shared<ListOptions>();
  CLI::App* command =
      app.add_subcommand("list", "List algorithms, codecs, metrics, derived values, or devices");
  std::vector<std::string> names;
  for (const Listed& each : all_listed()) names.emplace_back(each.what);
  command->add_option("WHAT", options->what, "What to list (see below)")
      ->required()
      ->check(CLI::IsMember(names));
  command->add_option("NAME", options->names, "Only these algorithms, or codecs of storage");
  CLI::Option* json = command->add_flag("--json", options->json, "One JSON document");
  command->add_flag("--markdown", options->markdown, "A table for a page")->excludes(json);
  command->footer(kListFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
