// CPU side of Kernels::exact_attention.
#pragma once

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

ExactRows exact_attention(const Stream& stream, std::vector<Index> rows);

}  // namespace kvbench::cpu
