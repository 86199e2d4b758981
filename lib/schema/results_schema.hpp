// The JSON Schema of results.json: `kvbench schema results`.
#pragma once

#include <vector>

#include "schema/parameter_schema.hpp"
#include "schema/sweep_schema.hpp"

namespace kvbench {

// Schema of what this version writes, key by key: every key that is not among them breaks it, those
// of `provenance` left aside.
Json results_schema(const std::vector<AlgorithmDescription>& algorithms);

}  // namespace kvbench
