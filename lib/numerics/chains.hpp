// Several canonical chains side by side, which hides the latency of their fused multiply-adds.
#pragma once

#include <cstddef>
#include <vector>

#include "numerics/canonical.hpp"
#include "numerics/unrolled.hpp"

namespace kvbench {

// out[i] = Step over x and rows[i], both [d], from index 0 up: the bits of canonical_dot (DotStep)
// and of squared_distance (DistanceStep).
template <class Step>
void canonical_chains(const double* x, const std::vector<const double*>& rows, Index d,
                      double* out) {
  constexpr int kChains = 8;
  std::size_t i = 0;
  for (; i + kChains <= rows.size(); i += kChains) {
    double sums[kChains] = {};
    for (Index k = 0; k < d; ++k) {
      unrolled<kChains>([&](auto c) { sums[c] = Step::next(x[k], rows[i + c][k], sums[c]); });
    }
    unrolled<kChains>([&](auto c) { out[i + c] = sums[c]; });
  }
  for (; i < rows.size(); ++i) {
    double sum = 0.0;
    for (Index k = 0; k < d; ++k) sum = Step::next(x[k], rows[i][k], sum);
    out[i] = sum;
  }
}

}  // namespace kvbench
