// The commands of the program. Each add_<command> gives the program its subcommand, with options,
// description and examples.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace kvbench {

struct Command {
  const CLI::App* app = nullptr;  // the subcommand
  std::function<int()> run;       // once it was parsed: does its work and returns the exit code
};

// `argv`: for the provenance.
Command add_run(CLI::App& app, std::vector<std::string> argv);
Command add_plan(CLI::App& app);
Command add_merge(CLI::App& app);

// One line per command that needs the parser alone, in the order of `kvbench --help`:
// add_<command>() is defined in commands/<command>.cpp.
#define KVBENCH_COMMANDS(COMMAND) \
  COMMAND(inspect)                \
  COMMAND(validate)               \
  COMMAND(synth)                  \
  COMMAND(calibrate)              \
  COMMAND(list)                   \
  COMMAND(export)                 \
  COMMAND(check)                  \
  COMMAND(compare)                \
  COMMAND(allocate)               \
  COMMAND(verify)                 \
  COMMAND(schema)                 \
  COMMAND(completion)

#define KVBENCH_DECLARE_COMMAND(name) Command add_##name(CLI::App& app);
KVBENCH_COMMANDS(KVBENCH_DECLARE_COMMAND)
#undef KVBENCH_DECLARE_COMMAND

}  // namespace kvbench
