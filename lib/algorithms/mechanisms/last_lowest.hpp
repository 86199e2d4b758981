// The token that goes where scores rank tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "numerics/lanes.hpp"

namespace kvbench {

// Place of the lowest of `count` scores, at least 1; of equal ones the last. 0 if the first is not
// a number; others that are none are passed over.
inline std::size_t last_lowest(const double* scores, std::size_t count) {
  if (std::isnan(scores[0])) return 0;
  constexpr auto kLanes = static_cast<std::size_t>(Lanes::kCount);
  double least[kLanes];
  Lanes lowest = Lanes::all(scores[0]);
  std::size_t p = 0;
  for (; p + kLanes <= count; p += kLanes) lowest = Lanes::min(Lanes::load(scores + p), lowest);
  lowest.store(least);
  double low = *std::min_element(least, least + kLanes);
  for (; p < count; ++p) low = scores[p] < low ? scores[p] : low;
  p = count - 1;
  while (scores[p] != low) --p;
  return p;
}

}  // namespace kvbench
