// The command line as CLI11 knows it, for completion and for what is wrong with words.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvbench {

// The commands of the program, in the order of its --help.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

struct OptionRow {
  std::string name;        // "--config"; a positional's is "DUMP"
  std::string short_name;  // "-c"; empty without one
  bool positional = false;
  bool takes_value = false;
  bool required = false;             // unless one of `instead` is given
  std::vector<std::string> instead;  // options that exclude it
  bool repeats = false;
  bool takes_several = false;        // words after its value are values too
  std::vector<std::string> choices;  // the words allowed, if there is a fixed set
};

// Options and positionals of a command, --help last.
std::vector<OptionRow> options_of(const CLI::App& command);

}  // namespace kvbench
