// A method written in Python as an algorithm: what it kept is known before the replay.
#pragma once

#include <string>

#include "algorithms/algorithm.hpp"
#include "core/kept_cache.hpp"
#include "json/json.hpp"

namespace kvbench::python {

// `params`: every parameter with its value, which is the only one. A prompt other than kept.prompt,
// or a stream that the rows do not fit, skips the cell.
AlgorithmDescription describe_method(const std::string& id, const nlohmann::json& params,
                                     bool randomised, KeptRows kept);

}  // namespace kvbench::python
