// An algorithm that holds what a test tells it to hold: for tests of everything downstream.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace kvbench::test {

// The calls, in order: "extend 0 3", "finish_prompt", "prepare 3", "answered 3".
using CallLog = std::vector<std::string>;

// `script(row, sketch)` sets the sketch when token `row` was fed (for decode rows; at the end of
// the prompt with row = P - 1). `row_logits`: whether prepare and answered are wanted.
AlgorithmDescription scripted(std::function<void(Index row, Sketch& sketch)> script,
                              bool row_logits = false, CallLog* log = nullptr);

}  // namespace kvbench::test
