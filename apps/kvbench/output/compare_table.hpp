// What `kvbench compare` prints.
#pragma once

#include <string>

#include "compare/compare.hpp"

namespace kvbench {

// A line per setting with the first metric of `rules` and memory, then what is worse, then the
// verdict.
std::string compare_table(const Comparison& comparison, const CompareRules& rules,
                          std::size_t columns);

}  // namespace kvbench
