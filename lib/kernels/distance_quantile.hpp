// A scale for delta that needs no random numbers: a quantile of the distances within a sample.
#pragma once

#include "numerics/matrix_view.hpp"

namespace kvbench {

// The `quantile` in [0, 1] of the l2 distances of all pairs among rows floor(m n / 128),
// m = 0..127, of `points` (all rows if n <= 128), linearly interpolated. 0 for fewer than two rows.
double distance_quantile(ConstMatrix points, double quantile);

}  // namespace kvbench
