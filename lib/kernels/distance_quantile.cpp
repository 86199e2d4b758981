#include "kernels/distance_quantile.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/canonical.hpp"
#include "numerics/quantile.hpp"

namespace kvbench {
namespace {

constexpr Index kSample = 128;

}  // namespace

double distance_quantile(ConstMatrix points, double quantile) {
  if (points.rows < 2) return 0.0;
  const Index count = std::min(points.rows, kSample);
  const auto sample = [&](Index m) { return points.row(m * points.rows / count); };

  std::vector<double> distances;
  distances.reserve(count * (count - 1) / 2);
  for (Index i = 0; i < count; ++i) {
    for (Index j = i + 1; j < count; ++j) {
      distances.push_back(std::sqrt(squared_distance(sample(i), sample(j), points.cols)));
    }
  }
  std::sort(distances.begin(), distances.end());
  return sorted_quantile(distances, quantile);
}

}  // namespace kvbench
