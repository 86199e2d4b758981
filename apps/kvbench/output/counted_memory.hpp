// How the memory of an algorithm is counted, in a sentence that follows from its description.
#pragma once

#include <string>

#include "algorithms/algorithm.hpp"

namespace kvbench {

// Such as "at most budget + 1 tokens, and 4 bytes per token and query head", with default
// parameters, where no layer slides. Kept numbers are computed at several sizes, and a rule that
// holds at all of them is put into words.
std::string counted_memory(const AlgorithmDescription& algorithm);

}  // namespace kvbench
