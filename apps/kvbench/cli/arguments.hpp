// What is wrong with the words of a command line, said better than CLI11 does.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvbench {

// Throws InputError, all faults at once, for a missing or misspelt command, options that the
// command does not have, words that it has no place for, values that an option does not take, empty
// ones among them, and what is required and not given. What else is wrong is left to CLI11.
// `words`: argv, with the program's name.
void check_arguments(CLI::App& app, const std::vector<std::string>& words);

// What CLI11 found wrong, with the command's name and the way to its --help.
std::string parse_error_text(CLI::App& app, const std::vector<std::string>& words,
                             const CLI::ParseError& fault);

}  // namespace kvbench
