#include "metrics/distribution.hpp"

#include <algorithm>

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

}  // namespace kvbench
