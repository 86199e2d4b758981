// The state of SubGen read back from its sketch.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "sketch/sketch.hpp"

namespace kvbench::test {

struct WeightedToken {
  Index token;
  double w_num;  // with the sketch's common factor
  double w_den;
};

struct SubgenParts {
  std::vector<Index> representatives;  // in order of opening
  std::vector<WeightedToken> samples;  // in order of clusters, t each
  std::vector<WeightedToken> slots;
  std::vector<WeightedToken> exact;  // sinks and recent tokens
  Index null_slots = 0;
};

SubgenParts subgen_parts(const Sketch& sketch);

}  // namespace kvbench::test
