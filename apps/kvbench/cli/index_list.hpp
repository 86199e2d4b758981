// Layers and attention heads as a command line names them: numbers and ranges.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvbench {

// 5 of "5", 0 to 7 of "0-7", nothing of other words. Throws InputError, which begins with
// `option`, for a range that falls, has no two numbers, or ends above 10000.
std::vector<int> indices_of(const std::string& option, const std::string& word);

// Adds an option of such words, separated by commas; "all", the default, leaves `out` empty. It
// throws InputError for other words.
CLI::Option* add_indices(CLI::App& command, const std::string& option, std::vector<int>& out,
                         const std::string& description);

}  // namespace kvbench
