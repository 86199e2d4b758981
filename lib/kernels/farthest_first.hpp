// CPU side of Kernels::farthest_first.
#pragma once

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

Centers farthest_first(ConstMatrix points, Index first, Index last, Index start, Index count);

}  // namespace kvbench::cpu
