// Whether results satisfy their bounds: `kvbench check`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "check/bounds.hpp"
#include "check/checked_results.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

struct Violation {
  Json cell;  // cell_reference(), or null if it is none of the results' cells
  std::string reason;
  std::optional<double> value;    // value of the metric, if it has one
  std::optional<double> allowed;  // limit of the value, if that is one number
};

// Outcome of one bound.
struct BoundOutcome {
  std::string name;
  std::string kind;
  std::string metric;
  Index matched = 0;               // cells of the results that `where` selects
  Index tested = 0;                // those of them that count for or against the bound
  std::vector<Json> vacuous;       // cell_reference()s: no verified bound, never held
  std::vector<Json> skipped;       // the sweep skipped them; `reason` next to the reference
  std::vector<Json> undefined;     // baseline: null in both
  Json evidence = Json::object();  // evidence that the verdict rests on, by kind
  std::vector<Violation> violations;

  bool held() const { return violations.empty(); }
};

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
