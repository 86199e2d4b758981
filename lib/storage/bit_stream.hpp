// Codes of a few bits, one after the other without gaps: the first in the lowest bits of the first
// byte. n codes of b bits take ceil(n b / 8) bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/matrix_view.hpp"

namespace kvbench {

constexpr Index packed_bytes(Index codes, int bits) { return (codes * bits + 7) / 8; }

class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  // `code` < 2^bits, bits <= 32.
  void put(std::uint32_t code, int bits) {
    waiting_ |= static_cast<std::uint64_t>(code) << count_;
    count_ += bits;
    while (count_ >= 8) write_byte();
  }
  // Writes the last, partial byte.
  void finish() {
    if (count_ > 0) write_byte();
  }

 private:
  void write_byte() {
    *out_++ = static_cast<std::byte>(waiting_ & 0xff);
    waiting_ >>= 8;
    count_ -= 8;
  }

  std::byte* out_;
  std::uint64_t waiting_ = 0;
  int count_ = 0;
};

class BitReader {
 public:
  explicit BitReader(const std::byte* in) : in_(in) {}

  std::uint32_t get(int bits) {
    while (count_ < bits) {
      waiting_ |= static_cast<std::uint64_t>(*in_++) << count_;
      count_ += 8;
    }
    const auto code = static_cast<std::uint32_t>(waiting_ & ((std::uint64_t{1} << bits) - 1));
    waiting_ >>= bits;
    count_ -= bits;
    return code;
  }

 private:
  const std::byte* in_;
  std::uint64_t waiting_ = 0;
  int count_ = 0;
};

}  // namespace kvbench
