// Quantiles of finite samples.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace kvbench {

// The `quantile` in [0, 1] of ascending values, linearly interpolated between order statistics,
// with numpy's default rule and rounding. `sorted` must not be empty.
inline double sorted_quantile(const std::vector<double>& sorted, double quantile) {
  const double position = quantile * static_cast<double>(sorted.size() - 1);
  const double floor = std::floor(position);
  const auto below = static_cast<std::size_t>(floor);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double fraction = position - floor;
  const double a = sorted[below];
  const double b = sorted[below + 1];
  return fraction < 0.5 ? a + (b - a) * fraction : b - (b - a) * (1.0 - fraction);
}

}  // namespace kvbench
