#include "hdf5/element_type.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace kvbench {
namespace {

struct Layout {
  std::string_view name;
  std::size_t bytes;
  int exponent_bits;
  int mantissa_bits;
};
constexpr std::array<Layout, 4> kLayouts = {
    {{"float16", 2, 5, 10}, {"bfloat16", 2, 8, 7}, {"float32", 4, 8, 23}, {"float64", 8, 11, 52}}};

constexpr const Layout& layout(ElementType type) {
  return kLayouts[static_cast<std::size_t>(type)];
}

template <class T>
T load(const std::byte* bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* bytes, std::size_t i, T value) {
  std::memcpy(bytes + i * sizeof(T), &value, sizeof(T));
}

template <class Word>
std::size_t first_with_full_exponent(const std::byte* elements, std::size_t count, Word mask) {
  constexpr std::size_t kBlock = 1024;
  for (std::size_t block = 0; block < count; block += kBlock) {
    const std::size_t end = std::min(count, block + kBlock);
    int found = 0;
    for (std::size_t i = block; i < end; ++i) {
      found |= static_cast<int>((load<Word>(elements, i) & mask) == mask);
    }
    if (found == 0) continue;
    for (std::size_t i = block; i < end; ++i) {
      if ((load<Word>(elements, i) & mask) == mask) return i;
    }
  }
  return count;
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00U) {
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  }
  // The bits of a half, put where a float has its own, are 2^112 too small; subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

void half_to_doubles(const std::byte* elements, std::size_t count, double* out) {
  std::size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    const __m256 floats =
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(elements + 2 * i)));
    _mm256_storeu_pd(out + i, _mm256_cvtps_pd(_mm256_castps256_ps128(floats)));
    _mm256_storeu_pd(out + i + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1)));
  }
#endif
  for (; i < count; ++i) out[i] = half_to_float(load<std::uint16_t>(elements, i));
}

// `value` rounded to nearest even on the grid of a narrower format.
double round_to_grid(double value, int exponent_bits, int mantissa_bits) {
  if (value == 0.0 || !std::isfinite(value)) return value;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  const double scaled = std::ldexp(value, mantissa_bits - exponent);
  const double grid = std::ldexp(std::nearbyint(scaled), exponent - mantissa_bits);
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -mantissa_bits), bias);
  return std::abs(grid) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value)
                                  : grid;
}

std::uint16_t half_bits(double value) {
  const double rounded = round_to_grid(value, 5, 10);
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::abs(rounded);
  if (std::isnan(magnitude)) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude < 0x1p-14)
    return static_cast<std::uint16_t>(sign | static_cast<int>(magnitude * 0x1p24));
  const int exponent = std::ilogb(magnitude);
  const int mantissa = static_cast<int>(std::ldexp(magnitude, 10 - exponent)) - 1024;
  return static_cast<std::uint16_t>(sign | ((exponent + 15) << 10) | mantissa);
}

std::uint16_t bfloat16_bits(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(round_to_grid(value, 8, 7)));
  return static_cast<std::uint16_t>((bits >> 16) | (std::isnan(value) ? 0x40U : 0U));
}

}  // namespace

std::size_t element_bytes(ElementType type) { return layout(type).bytes; }

std::string_view element_name(ElementType type) { return layout(type).name; }

std::optional<ElementType> element_type_named(std::string_view name) {
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    if (kLayouts[i].name == name) return static_cast<ElementType>(i);
  }
  return std::nullopt;
}

void swap_bytes(ElementType type, std::byte* elements, std::size_t count) {
  const std::size_t size = element_bytes(type);
  for (std::size_t i = 0; i < count; ++i)
    std::reverse(elements + i * size, elements + (i + 1) * size);
}

std::size_t first_nonfinite(ElementType type, const std::byte* elements, std::size_t count) {
  switch (type) {
    case ElementType::kFloat16:
      return first_with_full_exponent<std::uint16_t>(elements, count, 0x7c00U);
    case ElementType::kBfloat16:
      return first_with_full_exponent<std::uint16_t>(elements, count, 0x7f80U);
    case ElementType::kFloat32:
      return first_with_full_exponent<std::uint32_t>(elements, count, 0x7f800000U);
    case ElementType::kFloat64:
      return first_with_full_exponent<std::uint64_t>(elements, count, 0x7ff0000000000000U);
  }
  return count;
}

void to_doubles(ElementType type, const std::byte* elements, std::size_t count, double* out) {
  switch (type) {
    case ElementType::kFloat16:
      half_to_doubles(elements, count, out);
      break;
    case ElementType::kBfloat16:
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bits = static_cast<std::uint32_t>(load<std::uint16_t>(elements, i))
                                   << 16;
        out[i] = static_cast<double>(std::bit_cast<float>(bits));
      }
      break;
    case ElementType::kFloat32:
      for (std::size_t i = 0; i < count; ++i) out[i] = load<float>(elements, i);
      break;
    case ElementType::kFloat64:
      std::memcpy(out, elements, count * sizeof(double));
      break;
  }
}

void from_doubles(ElementType type, const double* values, std::size_t count, std::byte* out) {
  switch (type) {
    case ElementType::kFloat16:
      for (std::size_t i = 0; i < count; ++i) store(out, i, half_bits(values[i]));
      break;
    case ElementType::kBfloat16:
      for (std::size_t i = 0; i < count; ++i) store(out, i, bfloat16_bits(values[i]));
      break;
    case ElementType::kFloat32:
      for (std::size_t i = 0; i < count; ++i) store(out, i, static_cast<float>(values[i]));
      break;
    case ElementType::kFloat64:
      std::memcpy(out, values, count * sizeof(double));
      break;
  }
}

double rounded_to(ElementType type, double value) {
  if (type == ElementType::kFloat64) return value;
  return round_to_grid(value, layout(type).exponent_bits, layout(type).mantissa_bits);
}

double largest_finite(ElementType type) {
  const int bias = (1 << (layout(type).exponent_bits - 1)) - 1;
  return std::ldexp(2.0 - std::ldexp(1.0, -layout(type).mantissa_bits), bias);
}

double unit_roundoff(ElementType type) { return std::ldexp(1.0, -layout(type).mantissa_bits - 1); }

double least_normal(ElementType type) {
  return std::ldexp(1.0, 2 - (1 << (layout(type).exponent_bits - 1)));
}

ElementType coarser(ElementType a, ElementType b) {
  return unit_roundoff(a) < unit_roundoff(b) ? b : a;
}

}  // namespace kvbench
