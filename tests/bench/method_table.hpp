// `benchmarks --methods`: a row for every algorithm, on one shape at one budget.
#pragma once

#include <string>
#include <vector>

namespace kvbench::bench {

// Prints the times of these algorithms, or of all: the best of five rounds, as a table in Markdown.
// Returns 0; 1 if an algorithm of the registry has no floor or fails; 2 if an id is unknown.
int print_methods(const std::vector<std::string>& ids);

}  // namespace kvbench::bench
