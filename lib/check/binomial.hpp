// Exact binomial tails and the confidence limits that follow from them.
#pragma once

#include "numerics/matrix_view.hpp"

namespace kvbench {

// P[Binomial(n, p) >= k], 0 <= k <= n + 1, p in [0, 1]; relative error below 1e-9 for n <= 1e6.
double binomial_upper_tail(Index k, Index n, double p);

// Clopper-Pearson: the lower confidence limit, at level 1 - alpha, of the rate behind k events in n
// trials: the p at which binomial_upper_tail(k, n, p) = alpha; 0 where k = 0. n >= 1, alpha in (0,
// 1).
double clopper_pearson_lower(Index k, Index n, double alpha);

}  // namespace kvbench
