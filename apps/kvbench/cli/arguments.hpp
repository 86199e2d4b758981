// Checks the arguments of a command line, with better messages than CLI11's.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvbench {

// Throws InputError, all errors at once, for a missing or misspelt command, options that the
// command does not have, unexpected arguments, values that an option does not take, empty
// ones among them, and what is required and not given. Other errors are left to CLI11.
// `words`: argv, with the program's name.
void check_arguments(CLI::App& app, const std::vector<std::string>& words);

// Errors that CLI11 found, with the command's name and the way to its --help.
std::string parse_error_text(CLI::App& app, const std::vector<std::string>& words,
                             const CLI::ParseError& error);

}  // namespace kvbench
