// Places drawn with replacement, anew for each row and query head: what methods that answer from a
// sample of the tokens share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "numerics/matrix_view.hpp"

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

struct DrawnPlace {
  Index place;
  Index times;
};

// How often each place was drawn, ascending by place.
inline std::vector<DrawnPlace> counted(const std::vector<Index>& places) {
  std::vector<DrawnPlace> out;
  if (places.empty()) return out;
  std::vector<std::int32_t> times(
      static_cast<std::size_t>(*std::max_element(places.begin(), places.end()) + 1), 0);
  for (const Index place : places) ++times[place];
  for (std::size_t place = 0; place < times.size(); ++place) {
    if (times[place] > 0) out.push_back({static_cast<Index>(place), times[place]});
  }
  return out;
}

}  // namespace kvbench
