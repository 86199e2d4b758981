// Codes of a few bits, one after the other without gaps: the first in the lowest bits of the first
// byte. n codes of b bits take ceil(n b / 8) bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__BMI2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "numerics/matrix_view.hpp"

namespace kvbench {

constexpr Index packed_bytes(Index codes, int bits) { return (codes * bits + 7) / 8; }

namespace bit_stream_detail {

// Eight codes, one to a byte with the first in the lowest, as 8 `bits` bits, and back; bits <= 8.
inline std::uint64_t packed(std::uint64_t codes, int bits) {
  const std::uint64_t low = (std::uint64_t{1} << bits) - 1;
#if defined(__BMI2__)
  return _pext_u64(codes, low * 0x0101010101010101U);
#else
  std::uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= ((codes >> (8 * i)) & low) << (bits * i);
  return out;
#endif
}

inline std::uint64_t unpacked(std::uint64_t code, int bits) {
  const std::uint64_t low = (std::uint64_t{1} << bits) - 1;
#if defined(__BMI2__)
  return _pdep_u64(code, low * 0x0101010101010101U);
#else
  std::uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out |= ((code >> (bits * i)) & low) << (8 * i);
  return out;
#endif
}

// The first of a number's bytes is its lowest.
inline constexpr bool kIsLittle = std::endian::native == std::endian::little;

}  // namespace bit_stream_detail

class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : out_(out) {}

  // `count` codes, each < 2^bits, bits <= 8.
  void put_all(const std::uint8_t* codes, Index count, int bits) {
    Index i = 0;
    if (bit_stream_detail::kIsLittle && count_ == 0) {
      for (; i + 8 <= count; i += 8, out_ += bits) {
        std::uint64_t eight = 0;
        std::memcpy(&eight, codes + i, 8);
        const std::uint64_t code = bit_stream_detail::packed(eight, bits);
        if ((count - i) * bits >= 64) {  // bytes that follow are overwritten
          std::memcpy(out_, &code, 8);
        } else {
          for (int b = 0; b < bits; ++b) out_[b] = static_cast<std::byte>((code >> (8 * b)) & 0xff);
        }
      }
    }
    for (; i < count; ++i) put(codes[i], bits);
  }

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

// Which numbers have the bit 1.
enum class SignBit { kAboveZero, kNotBelowZero };

namespace bit_stream_detail {

// Signs of eight numbers, the first in the lowest bit.
template <SignBit kBit>
unsigned eight_signs(const double* x) {
#if defined(__AVX512F__)
  constexpr int kCompare = kBit == SignBit::kAboveZero ? _CMP_GT_OQ : _CMP_GE_OQ;
  return _mm512_cmp_pd_mask(_mm512_loadu_pd(x), _mm512_setzero_pd(), kCompare);
#else
  unsigned out = 0;
  for (unsigned k = 0; k < 8; ++k) {
    const bool is_one = kBit == SignBit::kAboveZero ? x[k] > 0.0 : x[k] >= 0.0;
    out |= (is_one ? 1U : 0U) << k;
  }
  return out;
#endif
}

}  // namespace bit_stream_detail

// Signs of `count` numbers, a bit each, in packed_bytes(count, 1) bytes.
template <SignBit kBit>
void put_signs(const double* x, Index count, std::byte* out) {
  for (; count >= 8; count -= 8, x += 8) {
    *out++ = static_cast<std::byte>(bit_stream_detail::eight_signs<kBit>(x));
  }
  if (count == 0) return;
  std::array<double, 8> rest;
  rest.fill(-1.0);
  std::copy_n(x, count, rest.begin());
  *out = static_cast<std::byte>(bit_stream_detail::eight_signs<kBit>(rest.data()));
}

class BitReader {
 public:
  explicit BitReader(const std::byte* in) : in_(in) {}

  // `count` codes of bits <= 8.
  void get_all(std::uint8_t* codes, Index count, int bits) {
    Index i = 0;
    if (bit_stream_detail::kIsLittle && count_ == 0) {
      for (; i + 8 <= count; i += 8, in_ += bits) {
        std::uint64_t code = 0;
        if ((count - i) * bits >= 64) {
          std::memcpy(&code, in_, 8);
        } else {
          for (int b = 0; b < bits; ++b) {
            code |= std::to_integer<std::uint64_t>(in_[b]) << (8 * b);
          }
        }
        const std::uint64_t eight = bit_stream_detail::unpacked(code, bits);
        std::memcpy(codes + i, &eight, 8);
      }
    }
    for (; i < count; ++i) codes[i] = static_cast<std::uint8_t>(get(bits));
  }

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
