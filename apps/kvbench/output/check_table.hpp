// Output of `kvbench check`.
#pragma once

#include <string>

#include "check/check.hpp"

namespace kvbench {

// A line per bound, the vacuous and skipped cells, a table of violations (the first of each bound;
// all of them are in the JSON), a closing line.
std::string check_table(const CheckReport& report, std::size_t columns);

// "violations 0, allowed 3": the numbers that a verdict rests on, in a line.
std::string evidence_text(const Json& evidence);

}  // namespace kvbench
