#include "system/hash.hpp"

#include <xxhash.h>

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
  return Key128{hash.high64, hash.low64}.text();
}

std::array<char, 32> Key128::digits() const {
  constexpr const char* kDigits = "0123456789abcdef";
  std::array<char, 32> digits;
  for (std::size_t i = 0; i < 16; ++i) {
    digits[i] = kDigits[(high >> (60 - 4 * i)) & 15];
    digits[16 + i] = kDigits[(low >> (60 - 4 * i)) & 15];
  }
  return digits;
}

std::string Key128::text() const {
  const std::array<char, 32> all = digits();
  return {all.data(), all.size()};
}

std::optional<Key128> Key128::from_text(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  Key128 key;
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    std::uint64_t& half = i < 16 ? key.high : key.low;
    half = half << 4 | (is_digit ? c - '0' : c - 'a' + 10);
  }
  return key;
}

Key128 hash128(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.high64, hash.low64};
}

std::string hash128_hex(std::string_view text) { return hash128(text).text(); }

}  // namespace kvbench
