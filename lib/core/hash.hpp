// Fixed hashes (xxHash): the same on every host, for identities that are written to files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kvbench {

// XXH64 of `text` with seed 0.
std::uint64_t hash64(std::string_view text);

// XXH3-128 over everything that was added, as 32 hexadecimal digits.
class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(const Hash128&) = delete;
  Hash128& operator=(const Hash128&) = delete;

  void add(const void* bytes, std::size_t size);
  void add(std::string_view text) { add(text.data(), text.size()); }
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash128_hex(std::string_view text);

}  // namespace kvbench
