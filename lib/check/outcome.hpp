// The outcome of testing one bound.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
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

}  // namespace kvbench
