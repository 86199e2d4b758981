// Places drawn with replacement, anew for each row and query head: what methods that answer from a
// sample of the tokens share.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "core/counter_rng.hpp"
#include "core/matrix_view.hpp"

namespace kvbench {

// The uniform number of one draw.
inline double draw_of(const CounterRng& random, Index row, int g, Index draw) {
  return random.uniform53(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(draw),
                          static_cast<std::uint32_t>(g));
}

// `draws` places of [0, size), each equally likely.
inline std::vector<Index> uniform_places(const CounterRng& random, Index row, int g, Index draws,
                                         Index size) {
  std::vector<Index> places;
  for (Index draw = 0; draw < draws; ++draw) {
    const double at = std::floor(draw_of(random, row, g, draw) * static_cast<double>(size));
    places.push_back(std::min(static_cast<Index>(at), size - 1));
  }
  return places;
}

// How often each place was drawn, ascending by place.
inline std::map<Index, Index> counted(const std::vector<Index>& places) {
  std::map<Index, Index> times;
  for (const Index place : places) ++times[place];
  return times;
}

}  // namespace kvbench
