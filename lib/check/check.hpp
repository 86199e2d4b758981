// Whether results satisfy their bounds: `kvbench check`.
#pragma once

#include <string>
#include <vector>

#include "check/bounds.hpp"
#include "check/checked_results.hpp"
#include "check/outcome.hpp"

namespace kvbench {

struct CheckReport {
  std::vector<Violation> violations;  // violations of the results themselves: incomplete
  std::vector<BoundOutcome> bounds;   // in the order of the file

  bool passed() const;
};

// Tests every bound. Whatever keeps a bound from being tested is a violation of it: no cell that
// matches, none but vacuous and skipped ones, a metric that is null, a failed cell, a pair or
// baseline without its counterpart. Throws InputError if a baseline cannot be read or a cell is not
// a cell record.
CheckReport check_bounds(const BoundsFile& bounds, const CheckedResults& results);
// `path`: of the results, for messages.
CheckReport check_bounds(const BoundsFile& bounds, const Json& results, const std::string& path);

Json report_json(const CheckReport& report);

}  // namespace kvbench
