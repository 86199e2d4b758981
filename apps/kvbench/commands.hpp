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
Command add_inspect(CLI::App& app);
Command add_validate(CLI::App& app);
Command add_synth(CLI::App& app);
Command add_list(CLI::App& app);
Command add_export(CLI::App& app);
Command add_check(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_schema(CLI::App& app);
Command add_completion(CLI::App& app);

}  // namespace kvbench
