// Quantiles of finite samples: linearly interpolated between order statistics, with numpy's default
// rule and rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace kvbench {
namespace detail {

// Where the `quantile` in [0, 1] of `count` > 0 ascending values lies: between the values `below`
// and below + 1, or at `below` if that is the last.
struct QuantilePlace {
  std::size_t below = 0;
  double fraction = 0.0;
  bool is_last = false;

  QuantilePlace(std::size_t count, double quantile) {
    const double position = quantile * static_cast<double>(count - 1);
    const double floor = std::floor(position);
    below = std::min(static_cast<std::size_t>(floor), count - 1);
    fraction = position - floor;
    is_last = below + 1 == count;
  }
  // Rounds towards the nearer of both, so that the end points are exact.
  double between(double a, double b) const {
    return fraction < 0.5 ? a + (b - a) * fraction : b - (b - a) * (1.0 - fraction);
  }
};

}  // namespace detail

// The `quantile` in [0, 1] of ascending values. `sorted` must not be empty.
inline double sorted_quantile(const std::vector<double>& sorted, double quantile) {
  const detail::QuantilePlace place(sorted.size(), quantile);
  if (place.is_last) return sorted[place.below];
  return place.between(sorted[place.below], sorted[place.below + 1]);
}

// The same of values in any order, which it reorders: cheaper than sorting for a few quantiles.
inline double reordering_quantile(std::vector<double>& values, double quantile) {
  const detail::QuantilePlace place(values.size(), quantile);
  const auto below = values.begin() + static_cast<std::ptrdiff_t>(place.below);
  std::nth_element(values.begin(), below, values.end());
  if (place.is_last) return *below;
  return place.between(*below, *std::min_element(below + 1, values.end()));
}

}  // namespace kvbench
