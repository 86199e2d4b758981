#include "algorithms/mechanisms/reservoir.hpp"

#include <algorithm>
#include <cmath>

namespace kvbench {

Index next_weighted(const std::vector<double>& cumulative, Index a, double u) {
  const double threshold = cumulative[a] / u;
  const auto begin = cumulative.begin() + a + 1;
  const auto found = std::upper_bound(begin, cumulative.end(), threshold);
  return found == cumulative.end() ? kNever : found - cumulative.begin();
}

Index next_uniform(Index a, double u) {
  const double next = std::floor(a / u) + 1.0;
  return next < 9e15 ? static_cast<Index>(next) : kNever;
}

}  // namespace kvbench
