// Signs of one walk of SoftmaxBalance per seed, drawn by the library or by the naive rule with a
// bug of choice.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/stream.hpp"
#include "support/naive_walk.hpp"

namespace kvbench::test {

struct WalkDraw {
  std::vector<int> signs;  // up to their common sign
  Index fail = 0;
};

// One draw per seed.
using WalkDraws = std::function<WalkDraw(std::uint32_t seed)>;

// A walk over all tokens of the stream but the last (the row that is answered).
struct WalkCase {
  const Stream* stream;
  double c;
  double r;
  bool numerator;  // weighed by the values; else by 1
};

WalkDraws library_walks(const WalkCase& c);
WalkDraws naive_walks(const WalkCase& c, WalkBug bug = WalkBug::kNone);

// The kernel of the walk, divided by R^2.
WalkKernel walk_kernel(const WalkCase& c);

}  // namespace kvbench::test
