// Where two records of the same cell differ.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

// Two numbers a and b are the same if |a - b| <= absolute + relative max(|a|, |b|).
struct NumberTolerance {
  double relative = 0.0;
  double absolute = 0.0;
};

struct RecordDifference {
  std::string path;  // "errors.relative_l2.mean"
  Json recorded;
  Json recomputed;  // null if it has no such value
};

// Every value of `recorded` that `recomputed` does not repeat, in the order of `recorded`. Members
// that name a cell or vary from run to run (id, key, label, repro, timing) are left out, and so is
// what `recomputed` alone has: later versions write more.
std::vector<RecordDifference> record_differences(const Json& recorded, const Json& recomputed,
                                                 const NumberTolerance& tolerance);

}  // namespace kvbench
