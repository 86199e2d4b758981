// All algorithms, in the order of `kvbench list algorithms`.
#pragma once

#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace kvbench {

const std::vector<AlgorithmDescription>& all_algorithms();

// The algorithm of that id or alias; nullptr if there is none.
const AlgorithmDescription* find_algorithm(const std::string& id);

}  // namespace kvbench
