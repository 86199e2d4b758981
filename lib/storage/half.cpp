#include "storage/half.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/error.hpp"
#include "storage/little_endian.hpp"
#include "storage/small_float.hpp"

namespace kvbench {

std::uint16_t half_bits(double x) {
  return static_cast<std::uint16_t>(small_float_bits<kBinary16>(x));
}

double from_half(std::uint16_t bits) { return small_float_value<kBinary16>(bits); }

double rounded_to_half(double x) {
  const double rounded = from_half(half_bits(x));
  if (std::isinf(rounded) && !std::isinf(x)) {
    throw CellError(fmt::format("{} is beyond the range of 16-bit floating point", x));
  }
  return rounded;
}

void put_half(double x, std::byte* out) { put_bytes(half_bits(rounded_to_half(x)), out); }

double get_half(const std::byte* in) { return from_half(get_bytes<std::uint16_t>(in)); }

}  // namespace kvbench
