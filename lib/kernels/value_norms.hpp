// CPU side of Kernels::value_norms.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

void value_norms(const Stream& stream, const std::vector<Index>& rows,
                 std::vector<double>& spectral, std::vector<double>& frobenius);

}  // namespace kvbench::cpu
