// The JSON Schema of results.json: `kvbench schema results`.
#pragma once

#include <vector>

#include "sweep/parameter_schema.hpp"
#include "sweep/sweep_schema.hpp"

namespace kvbench {

// What this version writes, key by key: every key that is not among them breaks it, those of
// `provenance` left aside.
SchemaJson results_schema(const std::vector<AlgorithmDescription>& algorithms);

}  // namespace kvbench
