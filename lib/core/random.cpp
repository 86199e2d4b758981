#include "core/random.hpp"

#include <Random123/philox.h>

#include <string>

#include "core/hash.hpp"

namespace kvbench {

Random::Random(std::uint32_t seed, std::uint64_t stream, std::string_view purpose) {
  std::string identity = std::to_string(seed) + '/' + std::to_string(stream) + '/';
  identity += purpose;
  const std::uint64_t hash = hash64(identity);
  key_ = {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32)};
}

std::array<std::uint32_t, 4> Random::words(std::uint32_t token, std::uint32_t slot,
                                           std::uint32_t round) const {
  const r123::Philox4x32::ctr_type counter = {{token, slot, round, 0}};
  const r123::Philox4x32::key_type key = {{key_[0], key_[1]}};
  const auto out = r123::Philox4x32()(counter, key);
  return {out[0], out[1], out[2], out[3]};
}

double Random::uniform(std::uint32_t token, std::uint32_t slot, std::uint32_t round) const {
  return (words(token, slot, round)[0] + 0.5) * 0x1p-32;
}

double Random::uniform53(std::uint32_t token, std::uint32_t slot, std::uint32_t round) const {
  const auto w = words(token, slot, round);
  const std::uint64_t bits = ((static_cast<std::uint64_t>(w[0]) << 32) | w[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace kvbench
