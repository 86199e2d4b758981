// SubGen's random state at one row, drawn by the library or by the naive rule with a bug of choice.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "support/naive_subgen.hpp"

namespace kvbench::test {

struct SubgenDraw {
  std::vector<Index> slots;                 // [s]
  std::vector<std::vector<Index>> samples;  // [m'][t]
  Sketch sketch;
};

// One draw per seed.
using SubgenDraws = std::function<SubgenDraw(std::uint32_t seed)>;

struct SubgenCase {
  const Stream* stream;
  double delta;
  Index t;
  Index s;
};

// State when the last row of the stream is answered.
SubgenDraws library_draws(const SubgenCase& c, const std::string& sampling = "v2");
SubgenDraws naive_draws(const SubgenCase& c, SubgenBug bug = SubgenBug::kNone);

}  // namespace kvbench::test
