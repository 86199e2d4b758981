#include "storage/half.hpp"

#include <fmt/format.h>

#include <cmath>

#include "storage/little_endian.hpp"
#include "storage/small_float.hpp"
#include "system/error.hpp"

namespace kvbench {

std::uint16_t half_bits(double x) {
  return static_cast<std::uint16_t>(small_float_bits<kBinary16>(x));
}

double from_half(std::uint16_t bits) { return small_float_value<kBinary16>(bits); }

namespace {

// half_bits(x), where they are not those of infinity or x is infinite itself.
std::uint16_t finite_half_bits(double x) {
  const std::uint16_t bits = half_bits(x);
  if ((bits & 0x7fff) == kBinary16.overflow && !std::isinf(x)) {
    throw CellError(fmt::format("{} is beyond the range of 16-bit floating point", x));
  }
  return bits;
}

}  // namespace

double rounded_to_half(double x) { return from_half(finite_half_bits(x)); }

void put_half(double x, std::byte* out) { put_bytes(finite_half_bits(x), out); }

double get_half(const std::byte* in) { return from_half(get_bytes<std::uint16_t>(in)); }

}  // namespace kvbench
