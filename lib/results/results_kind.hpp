// The kind and schema version of results.json.
#pragma once

#include "results/results_kind.hpp"

namespace kvbench {

inline constexpr const char* kResultsKind = "kvbench.results";
inline constexpr const char* kResultsSchema = "1.8.0";

}  // namespace kvbench
