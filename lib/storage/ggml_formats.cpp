// Blocks of 32 numbers as ggml stores them, byte by byte: block_q8_0, q5_0, q5_1, q4_0 and q4_1 of
// ggml-common.h, encoded as the reference rows of ggml-quants.c in float32.
//
// Source: llama.cpp, ggml/src/ggml-quants.c (quantize_row_q8_0_ref and the like). The bytes are
// those of the gguf package 0.19.0, its reading of them as well (tests/peers/storage_test.py).
// Scales and minima are stored in binary16, codes are made with the unrounded ones. Where 1 / scale
// is infinite, which is left open there, codes are those of a scale of 0: it is 0 in binary16.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "storage/codec.hpp"
#include "storage/half.hpp"
#include "storage/little_endian.hpp"
#include "storage/number_blocks.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kNumbers = 32;
using Numbers = std::array<float, kNumbers>;
using Codes = std::array<std::uint8_t, kNumbers>;

Numbers in_float32(const double* x) {
  Numbers out;
  for (std::size_t i = 0; i < kNumbers; ++i) out[i] = static_cast<float>(x[i]);
  return out;
}

void put_scale(float scale, std::byte* out) {
  const std::uint16_t bits = half_bits(scale);
  if (!std::isfinite(from_half(bits))) {
    throw CellError(fmt::format(
        "a block's scale or minimum, {}, is beyond the range of 16-bit floating point", scale));
  }
  put_bytes(bits, out);
}

float get_scale(const std::byte* in) { return static_cast<float>(get_half(in)); }

float reciprocal(float scale) {
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  return std::isfinite(inverse) ? inverse : 0.0F;
}

float largest_size(const Numbers& x) {
  std::array<float, 8> sizes{};
  for (std::size_t i = 0; i < kNumbers; i += sizes.size()) {
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      const float size = std::fabs(x[i + j]);
      sizes[j] = size > sizes[j] ? size : sizes[j];
    }
  }
  return *std::max_element(sizes.begin(), sizes.end());
}

// The first number of the largest size, with its sign.
float largest_of(const Numbers& x) {
  const float size = largest_size(x);
  return *std::find_if(x.begin(), x.end(), [&](float number) { return std::fabs(number) == size; });
}

struct Ends {
  float least;
  float most;
};

// Least and most of the numbers: the first of two zeros of different sign is the least, the last
// the most.
Ends ends_of(const Numbers& x) {
  std::array<float, 8> low;
  std::array<float, 8> high;
  std::copy_n(x.begin(), low.size(), low.begin());
  high = low;
  for (std::size_t i = low.size(); i < kNumbers; i += low.size()) {
    for (std::size_t j = 0; j < low.size(); ++j) {
      low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
      high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
    }
  }
  const float least = *std::min_element(low.begin(), low.end());
  const float most = *std::max_element(high.begin(), high.end());
  if (least != 0.0F && most != 0.0F) return {least, most};
  const auto [first, last] = std::minmax_element(x.begin(), x.end());
  return {*first, *last};
}

// To the nearest whole number, halves away from 0.
std::int32_t rounded(float x) {
  const auto whole = static_cast<std::int32_t>(x);
  const float rest = x - static_cast<float>(whole);
  return whole + (rest >= 0.5F ? 1 : 0) - (rest <= -0.5F ? 1 : 0);
}

// The lower four bits: number i and i + 16 in a byte.
void put_nibbles(const Codes& codes, std::byte* out) {
  for (std::size_t i = 0; i < kNumbers / 2; ++i) {
    out[i] = static_cast<std::byte>((codes[i] & 15) | ((codes[i + kNumbers / 2] & 15) << 4));
  }
}

void get_nibbles(const std::byte* in, Codes& codes) {
  for (std::size_t i = 0; i < kNumbers / 2; ++i) {
    const auto byte = std::to_integer<unsigned>(in[i]);
    codes[i] = static_cast<std::uint8_t>(byte & 15);
    codes[i + kNumbers / 2] = static_cast<std::uint8_t>(byte >> 4);
  }
}

// Codes of kBits: of five the upper bits first, together.
template <int kBits>
void put_codes(const Codes& codes, std::byte* out) {
  if constexpr (kBits == 5) {
    std::uint32_t upper = 0;
    for (std::size_t i = 0; i < kNumbers; ++i) {
      upper |= static_cast<std::uint32_t>(codes[i] >> 4) << i;
    }
    put_bytes(upper, out);
    out += 4;
  }
  put_nibbles(codes, out);
}

template <int kBits>
Codes get_codes(const std::byte* in) {
  std::uint32_t upper = 0;
  if constexpr (kBits == 5) {
    upper = get_bytes<std::uint32_t>(in);
    in += 4;
  }
  Codes codes;
  get_nibbles(in, codes);
  for (std::size_t i = 0; i < kNumbers; ++i) {
    codes[i] = static_cast<std::uint8_t>(codes[i] | (((upper >> i) & 1) << 4));
  }
  return codes;
}

template <int kBits>
std::uint8_t code_of(float x) {
  return static_cast<std::uint8_t>(std::min(static_cast<int>(x), (1 << kBits) - 1));
}

// d, then codes c of 8 bits with a sign: c d.
struct SignedBytes {
  static constexpr Index kNumbers = 32;
  static constexpr Index kBytes = 34;

  static void encode(const double* vector, std::byte* out) {
    const Numbers x = in_float32(vector);
    const float d = largest_size(x) / 127.0F;
    const float inverse = reciprocal(d);
    put_scale(d, out);
    for (std::size_t i = 0; i < x.size(); ++i) {
      out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(rounded(x[i] * inverse)));
    }
  }
  static void decode(const std::byte* in, double* vector) {
    const float d = get_scale(in);
    for (std::size_t i = 0; i < 32; ++i) {
      const auto code = static_cast<std::int8_t>(std::to_integer<unsigned>(in[2 + i]));
      vector[i] = static_cast<float>(code) * d;
    }
  }
};

// d, then codes c: (c - 2^(b-1)) d. The number of largest size has the code 0.
template <int kBits>
struct Centred {
  static constexpr Index kNumbers = 32;
  static constexpr Index kBytes = 2 + kBits * kNumbers / 8;
  static constexpr float kMiddle = 1 << (kBits - 1);

  static void encode(const double* vector, std::byte* out) {
    const Numbers x = in_float32(vector);
    const float d = largest_of(x) / -kMiddle;
    const float inverse = reciprocal(d);
    put_scale(d, out);
    Codes codes;
    for (std::size_t i = 0; i < x.size(); ++i) {
      codes[i] = code_of<kBits>(x[i] * inverse + (kMiddle + 0.5F));
    }
    put_codes<kBits>(codes, out + 2);
  }
  static void decode(const std::byte* in, double* vector) {
    const float d = get_scale(in);
    const Codes codes = get_codes<kBits>(in + 2);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      vector[i] = (static_cast<float>(codes[i]) - kMiddle) * d;
    }
  }
};

// d and m, the least number, then codes c: c d + m.
template <int kBits>
struct FromLeast {
  static constexpr Index kNumbers = 32;
  static constexpr Index kBytes = 4 + kBits * kNumbers / 8;

  static void encode(const double* vector, std::byte* out) {
    const Numbers x = in_float32(vector);
    const auto [m, most] = ends_of(x);
    const float d = (most - m) / static_cast<float>((1 << kBits) - 1);
    const float inverse = reciprocal(d);
    put_scale(d, out);
    put_scale(m, out + 2);
    Codes codes;
    for (std::size_t i = 0; i < x.size(); ++i) {
      codes[i] = code_of<kBits>((x[i] - m) * inverse + 0.5F);
    }
    put_codes<kBits>(codes, out + 4);
  }
  static void decode(const std::byte* in, double* vector) {
    const float d = get_scale(in);
    const float m = get_scale(in + 2);
    const Codes codes = get_codes<kBits>(in + 4);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      vector[i] = static_cast<float>(codes[i]) * d + m;
    }
  }
};

template <class Block>
CodecDescription describe(const std::string& id, const std::string& title,
                          const std::string& bits) {
  TypedCodec<NoParameters> c;
  c.id = id;
  c.title = title;
  c.source = "ggml (llama.cpp), block_" + id;
  c.bits = bits;
  c.skip_reason = [](const NoParameters&, const StreamShape& shape, CacheTensor tensor, Index) {
    return uneven_blocks(shape, tensor, Block::kNumbers, kWithoutBlocks);
  };
  c.create = [](const NoParameters&, const CodecContext& context) {
    return std::make_unique<NumberBlocks<Block>>(context.width());
  };
  return c;
}

}  // namespace

CodecDescription describe_codec_q8_0() {
  return describe<SignedBytes>("q8_0", "blocks of 32: scale and 8-bit whole numbers", "8.5");
}

CodecDescription describe_codec_q5_0() {
  return describe<Centred<5>>("q5_0", "blocks of 32: signed scale and 5-bit codes about 0", "5.5");
}

CodecDescription describe_codec_q5_1() {
  return describe<FromLeast<5>>("q5_1", "blocks of 32: scale, minimum and 5-bit codes", "6");
}

CodecDescription describe_codec_q4_0() {
  return describe<Centred<4>>("q4_0", "blocks of 32: signed scale and 4-bit codes about 0", "4.5");
}

CodecDescription describe_codec_q4_1() {
  return describe<FromLeast<4>>("q4_1", "blocks of 32: scale, minimum and 4-bit codes", "5");
}

}  // namespace kvbench
