#include <fmt/core.h>

#include <memory>
#include <string>

#include "algorithms/registry.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "schema/bounds_schema.hpp"
#include "schema/results_schema.hpp"
#include "schema/sweep_schema.hpp"

namespace kvbench {
namespace {

constexpr const char* kSchemaFooter =
    R"(JSON Schema, draft 2020-12, on stdout, made from the tables that the program itself checks with;
a build writes it to build/schema, an installation to share/kvbench/schema. Editors that
support it complete keys and flag typos. Sweep and bounds files may have // comments; strip them before
validating. A file that breaks its schema is refused; kvbench validate --config F checks the rest.

Examples:
  kvbench schema sweep > sweep.schema.json
  kvbench schema results > results.schema.json
  kvbench schema bounds > bounds.schema.json)";

int run(const std::string& what) {
  const Json schema = what == "sweep"    ? sweep_schema(all_algorithms())
                      : what == "bounds" ? bounds_schema()
                                         : results_schema(all_algorithms());
  fmt::print("{}\n", indented(schema, 1));
  return kExitDone;
}

}  // namespace

Command add_schema(CLI::App& app) {
  const auto what = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("schema", "Print the JSON Schema of sweep files, results or bounds files");
  command->add_option("WHAT", *what, "sweep, results or bounds")
      ->required()
      ->check(CLI::IsMember({"sweep", "results", "bounds"}));
  command->footer(kSchemaFooter);
  return {command, [what] { return run(*what); }};
}

}  // namespace kvbench
