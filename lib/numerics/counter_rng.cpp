#include "numerics/counter_rng.hpp"

#include <string>

#include "system/hash.hpp"

namespace kvbench {

CounterRng::CounterRng(std::uint32_t seed, std::uint64_t stream, std::string_view purpose) {
  std::string identity = std::to_string(seed) + '/' + std::to_string(stream) + '/';
  identity += purpose;
  const std::uint64_t hash = hash64(identity);
  key_ = {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

}  // namespace kvbench
