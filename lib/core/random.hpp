// Counter-based random numbers (Philox 4x32-10): every draw is a pure function of what it is for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvbench {

// The draws of one purpose on one stream. A draw is addressed by (token, slot, round): there is no
// state, so results never depend on traversal order, threads, stream length or other parameters.
class Random {
 public:
  // `stream`: hash of sequence name, layer and KV head (StreamId::hash). `purpose`: algorithm id
  // and name of the draw, e.g. "subgen/slot".
  Random(std::uint32_t seed, std::uint64_t stream, std::string_view purpose);

  // Four words of Philox 4x32-10 at counter (token, slot, round, 0).
  std::array<std::uint32_t, 4> words(std::uint32_t token, std::uint32_t slot = 0,
                                     std::uint32_t round = 0) const;

  // U in (0, 1): (x + 0.5) 2^-32, x the first word.
  double uniform(std::uint32_t token, std::uint32_t slot = 0, std::uint32_t round = 0) const;

  // U in (0, 1) with 53 bits, (2 x + 1) 2^-53, x the top 52 bits of the first two words (exact in a
  // double, so never 0 or 1): for draws whose tails matter (reservoir jumps, logarithms).
  double uniform53(std::uint32_t token, std::uint32_t slot = 0, std::uint32_t round = 0) const;

 private:
  std::array<std::uint32_t, 2> key_;
};

}  // namespace kvbench
