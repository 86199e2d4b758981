// CPU side of Kernels::logits.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

void logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out);

}  // namespace kvbench::cpu
