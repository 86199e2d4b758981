#include "metrics/distribution.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/quantile.hpp"

namespace kvbench {

Distribution distribution(std::vector<double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  Distribution out;
  const double count = values.size();
  out.mean = sum / count;
  if (!std::isfinite(out.mean)) {
    std::sort(values.begin(), values.end());
    out.mean = 0.0;
    for (const double value : values) out.mean += value / count;
  }
  out.median = reordering_quantile(values, 0.5);
  out.p90 = reordering_quantile(values, 0.9);
  out.p99 = reordering_quantile(values, 0.99);
  out.max = *std::max_element(values.begin(), values.end());
  return out;
}

double root_mean_square(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  if (!(largest > 0.0) || !std::isfinite(largest)) return largest;
  double squares = 0.0;
  for (const double value : values) squares += (value / largest) * (value / largest);
  return largest * std::sqrt(squares / values.size());
}

}  // namespace kvbench
