// Vectors turned by rotary positions.
#pragma once

#include <vector>

#include "core/stream.hpp"

namespace kvbench {

// A turn of vectors by a number of positions, or the mean of several turns. The first 2 *
// inv_freq.size() dimensions of a vector turn in pairs, the others stay.
class Turn {
 public:
  explicit Turn(const Rope& rope, double positions = 0.0);
  // The mean of the turns by [first, last) positions: a linear map that shortens pairs.
  static Turn mean(const Rope& rope, Index first, Index last);

  void set(double positions);
  // in and out [d] must not overlap.
  void apply(const double* in, Index d, double* out) const;

 private:
  const Rope* rope_;
  std::vector<double> cos_;  // by pair
  std::vector<double> sin_;
};

}  // namespace kvbench
