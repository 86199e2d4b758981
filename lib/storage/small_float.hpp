// Floating-point formats of few bits: written from a double in one rounding, to nearest, ties to
// even, and read back.
//
// Source: IEEE 754-2019 (binary16); bfloat16, the upper half of a binary32; OCP OFP8 1.0 (E4M3 and
// E5M2, which others call e4m3fn and e5m2); OCP MX 1.0 (E2M1).
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace kvbench {

// A sign, an exponent and a fraction, from the upper bit to the lower; with exponent 0 the fraction
// has no leading one.
struct SmallFloat {
  int exponent_bits;
  int fraction_bits;
  std::uint32_t largest;   // bits of the largest number
  std::uint32_t overflow;  // bits of what lies beyond: infinity, or the largest number itself
  std::uint32_t nan;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t sign() const { return 1U << (exponent_bits + fraction_bits); }
};

inline constexpr SmallFloat kBinary16{5, 10, 0x7bff, 0x7c00, 0x7e00};
inline constexpr SmallFloat kBFloat16{8, 7, 0x7f7f, 0x7f80, 0x7fc0};
inline constexpr SmallFloat kE4M3{4, 3, 0x7e, 0x7e, 0x7f};  // no infinity: 448, as torch casts
inline constexpr SmallFloat kE5M2{5, 2, 0x7b, 0x7c, 0x7f};
inline constexpr SmallFloat kE2M1{2, 1, 0x7, 0x7, 0x7};  // neither infinity nor NaN

namespace small_float_detail {

constexpr double two_to(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

}  // namespace small_float_detail

// The bits of the nearest number.
template <SmallFloat F>
constexpr std::uint32_t small_float_bits(double x) {
  constexpr int kDropped = 52 - F.fraction_bits;
  constexpr int kMinExponent = 1 - F.bias();
  // A double whose last place is the format's smallest number.
  constexpr double kShift = small_float_detail::two_to(kMinExponent - F.fraction_bits + 52);
  constexpr auto kMinNormal =
      std::bit_cast<std::uint64_t>(small_float_detail::two_to(kMinExponent));
  constexpr std::uint64_t kInfinity = std::uint64_t{0x7ff} << 52;
  constexpr std::uint64_t kBelowHalf = (std::uint64_t{1} << (kDropped - 1)) - 1;

  const auto all = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t size = all & ~(std::uint64_t{1} << 63);
  const std::uint32_t sign = (all >> 63) != 0 ? F.sign() : 0;
  // Both are computed and one is chosen, without branches, so that loops can be vectorised.
  const std::uint64_t small = std::bit_cast<std::uint64_t>(std::bit_cast<double>(size) + kShift) -
                              std::bit_cast<std::uint64_t>(kShift);
  // Carries go from the fraction into the exponent.
  const std::uint64_t normal = ((size + kBelowHalf + ((size >> kDropped) & 1)) >> kDropped) -
                               (static_cast<std::uint64_t>(1023 - F.bias()) << F.fraction_bits);
  const std::uint64_t bits = size < kMinNormal ? small : normal;
  const std::uint32_t number = bits > F.largest ? F.overflow : static_cast<std::uint32_t>(bits);
  return sign | (size > kInfinity ? F.nan : number);
}

// The number of some bits.
template <SmallFloat F>
constexpr double small_float_value(std::uint32_t bits) {
  constexpr double kUnbias = small_float_detail::two_to(1023 - F.bias());
  const std::uint32_t size = bits & (F.sign() - 1);
  double value =
      std::bit_cast<double>(static_cast<std::uint64_t>(size) << (52 - F.fraction_bits)) * kUnbias;
  if (size > F.largest) {
    value = size == F.overflow ? std::numeric_limits<double>::infinity()
                               : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits & F.sign()) != 0 ? -value : value;
}

// All numbers of a format of 8 bits or fewer, by their bits.
template <SmallFloat F>
inline constexpr auto kSmallFloatValues = [] {
  std::array<double, 2 * F.sign()> values{};
  for (std::uint32_t bits = 0; bits < values.size(); ++bits) {
    values[bits] = small_float_value<F>(bits);
  }
  return values;
}();

}  // namespace kvbench
