#include "core/hash.hpp"

#include <xxhash.h>

#include <array>
#include <cstdio>
#include <new>

namespace kvbench {

std::uint64_t hash64(std::string_view text) { return XXH64(text.data(), text.size(), 0); }

struct Hash128::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hash128::Hash128() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->xxh);
}

Hash128::~Hash128() = default;

void Hash128::add(const void* bytes, std::size_t size) {
  XXH3_128bits_update(state_->xxh, bytes, size);
}

std::string Hash128::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

std::string hash128_hex(std::string_view text) {
  Hash128 hash;
  hash.add(text);
  return hash.hex();
}

}  // namespace kvbench
