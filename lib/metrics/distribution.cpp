#include "metrics/distribution.hpp"

#include <algorithm>
#include <cmath>

#include "core/quantile.hpp"

namespace kvbench {

Distribution distribution(std::vector<double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  std::sort(values.begin(), values.end());
  Distribution out;
  out.mean = sum / static_cast<double>(values.size());
  out.median = sorted_quantile(values, 0.5);
  out.p90 = sorted_quantile(values, 0.9);
  out.p99 = sorted_quantile(values, 0.99);
  out.max = values.back();
  return out;
}

double root_mean_square(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  if (!(largest > 0.0) || !std::isfinite(largest)) return largest;
  double squares = 0.0;
  for (const double value : values) squares += (value / largest) * (value / largest);
  return largest * std::sqrt(squares / static_cast<double>(values.size()));
}

double norm(double squares, const double* x, Index n) {
  if (squares > 1e-280) return std::sqrt(squares);
  double largest = 0.0;
  for (Index k = 0; k < n; ++k) largest = std::max(largest, std::abs(x[k]));
  if (largest == 0.0) return 0.0;
  double sum = 0.0;
  for (Index k = 0; k < n; ++k) sum += (x[k] / largest) * (x[k] / largest);
  return largest * std::sqrt(sum);
}

}  // namespace kvbench
