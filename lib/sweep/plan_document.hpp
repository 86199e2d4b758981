// A plan as JSON, so that it can be restored where its dumps are not available.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "json/json.hpp"
#include "sweep/make_plan.hpp"

namespace kvbench {

// Inputs of a plan: the resolved sweep, `--only`, the device, and of each dump path, fingerprint,
// model and structure. Cells are not listed: they follow.
nlohmann::json plan_document(const Plan& plan);

// The plan again, without a look at the dumps. `place` begins messages. Throws InputError where
// the document is none, or where this program would plan otherwise than `hash`;
// `memory_limit` as make_plan() has it.
Plan plan_from_document(const nlohmann::json& document, const std::string& hash,
                        const std::string& place,
                        const std::vector<AlgorithmDescription>& algorithms,
                        double memory_limit = std::numeric_limits<double>::infinity());

}  // namespace kvbench
