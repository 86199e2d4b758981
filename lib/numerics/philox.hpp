// Draws of Philox 4x32-10 as functions of key and counter, for the host and for CUDA devices.
#pragma once

#include <Random123/philox.h>

#include <cstdint>

#include "numerics/host_device.hpp"

namespace kvbench {

struct PhiloxKey {
  std::uint32_t low = 0;
  std::uint32_t high = 0;

  bool operator==(const PhiloxKey&) const = default;
};

// Four words at counter (token, slot, round, 0).
KVBENCH_HOST_DEVICE inline r123::Philox4x32::ctr_type philox_words(PhiloxKey key,
                                                                   std::uint32_t token,
                                                                   std::uint32_t slot,
                                                                   std::uint32_t round) {
  const r123::Philox4x32::ctr_type counter = {{token, slot, round, 0}};
  const r123::Philox4x32::key_type words = {{key.low, key.high}};
  return r123::Philox4x32()(counter, words);
}

// U in (0, 1): (x + 0.5) 2^-32, x the first word.
KVBENCH_HOST_DEVICE inline double philox_uniform(PhiloxKey key, std::uint32_t token,
                                                 std::uint32_t slot, std::uint32_t round) {
  return (philox_words(key, token, slot, round)[0] + 0.5) * 0x1p-32;
}

// U in (0, 1) with 53 bits, (2 x + 1) 2^-53, x the top 52 bits of the first two words (exact in a
// double, so never 0 or 1).
KVBENCH_HOST_DEVICE inline double philox_uniform53(PhiloxKey key, std::uint32_t token,
                                                   std::uint32_t slot, std::uint32_t round) {
  const r123::Philox4x32::ctr_type w = philox_words(key, token, slot, round);
  const std::uint64_t bits = ((static_cast<std::uint64_t>(w[0]) << 32) | w[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace kvbench
