// IEEE 754 binary16: the format of most scales.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvbench {

// The nearest number, ties to even, as its bits; beyond 65504 by half a step or more: infinity.
std::uint16_t half_bits(double x);
double from_half(std::uint16_t bits);

// from_half(half_bits(x)); throws CellError where that is infinite and x is not.
double rounded_to_half(double x);

// The same in two bytes, least byte first.
void put_half(double x, std::byte* out);
double get_half(const std::byte* in);

}  // namespace kvbench
