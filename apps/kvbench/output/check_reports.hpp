// `kvbench check` for those who show verdicts to people: services of CI.
#pragma once

#include <string>

#include "check/check.hpp"

namespace kvbench {

// One test suite in JUnit's XML: a test case per bound, named for it, with its violations as the
// failure; what no bound tested (incomplete results) is a case of its own. `suite`: the bounds
// file, `classname`: the results.
std::string check_junit(const CheckReport& report, const std::string& suite,
                        const std::string& classname);

// A heading with the count, a Markdown table of a line per bound, the first violations of each.
std::string check_markdown(const CheckReport& report);

// Prints the report as `format`: table, json, junit or markdown. `bounds`, `results`: the files.
void print_check(const CheckReport& report, const std::string& format, const std::string& bounds,
                 const std::string& results);

}  // namespace kvbench
