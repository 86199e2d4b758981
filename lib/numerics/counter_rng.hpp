// Counter-based random numbers (Philox 4x32-10): every draw is a pure function of what it is for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "numerics/counter_rng.hpp"
#include "numerics/philox.hpp"

namespace kvbench {

// The draws of one purpose on one stream. A draw is addressed by (token, slot, round): there is no
// state, so results never depend on traversal order, threads, stream length or other parameters.
class CounterRng {
 public:
  // `stream`: hash of sequence name, layer and KV head (StreamId::hash). `purpose`: algorithm id
  // and name of the draw, e.g. "subgen/slot".
  CounterRng(std::uint32_t seed, std::uint64_t stream, std::string_view purpose);

  PhiloxKey key() const { return key_; }

  // Four words of Philox 4x32-10 at counter (token, slot, round, 0).
  std::array<std::uint32_t, 4> words(std::uint32_t token, std::uint32_t slot = 0,
                                     std::uint32_t round = 0) const {
    const auto out = philox_words(key_, token, slot, round);
    return {out[0], out[1], out[2], out[3]};
  }

  // U in (0, 1) with 32 bits.
  double uniform(std::uint32_t token, std::uint32_t slot = 0, std::uint32_t round = 0) const {
    return philox_uniform(key_, token, slot, round);
  }

  // U in (0, 1) with 53 bits: for draws whose tails matter (reservoir jumps, logarithms).
  double uniform53(std::uint32_t token, std::uint32_t slot = 0, std::uint32_t round = 0) const {
    return philox_uniform53(key_, token, slot, round);
  }

 private:
  PhiloxKey key_;
};

}  // namespace kvbench
