// Fixed hashes (xxHash): the same on every host, for identities that are written to files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace kvbench {

// XXH64 of `text` with seed 0.
std::uint64_t hash64(std::string_view text);

// A hash of 128 bits: it replaces an identity where there are millions. As text 32 hexadecimal
// digits.
struct Key128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  std::string text() const;
  std::array<char, 32> digits() const;             // digits of the text
  operator std::string() const { return text(); }  // NOLINT(google-explicit-constructor)
  // The key of that text; nullopt where it is not 32 hexadecimal digits in lower case.
  static std::optional<Key128> from_text(std::string_view text);

  friend bool operator==(const Key128&, const Key128&) = default;
  friend bool operator==(const Key128& key, std::string_view text) { return key.text() == text; }
};

// XXH3-128 over everything that was added.
class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;

  void add(const void* bytes, std::size_t size);
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::string hex() const;  // as text

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Key128 hash128(std::string_view text);
std::string hash128_hex(std::string_view text);

}  // namespace kvbench
