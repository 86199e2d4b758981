// CPU side of Kernels::cluster.
#pragma once

#include "kernels/kernels.hpp"

namespace kvbench::cpu {

Clustering cluster(ConstMatrix points, Index first, double delta);

}  // namespace kvbench::cpu
