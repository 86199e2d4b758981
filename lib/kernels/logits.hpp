// CPU side of Kernels::logits.
#pragma once

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

void logits(const Stream& stream, Index first, Index last, LogitBlock& out);

}  // namespace kvbench::cpu
