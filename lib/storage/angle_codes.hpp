// The angles of polarquant's semantics han: their codes, and the angle of each code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "numerics/matrix_view.hpp"

namespace kvbench {

constexpr int kAngleLevels = 4;
constexpr int kArcBits = 4;    // bits of level 1: 16 equal arcs of the circle
constexpr int kAngleBits = 2;  // bits of levels 2 to 4: the best points of [0, pi / 2]

constexpr int angle_bits(int level) { return level == 1 ? kArcBits : kAngleBits; }

// The code of the angle of (x, y), from its canonical angle; of two points equally near the lower.
// Beyond the first level neither x nor y is negative.
std::uint64_t angle_code(int level, double x, double y);

// The same of `count` pairs side by side. Products with tangents decide where rounding cannot have
// an influence, canonical angles the rest.
void find_angle_codes(int level, const double* x, const double* y, Index count,
                      std::uint64_t* codes);

// By code: sine and cosine of its angle.
struct AngleTable {
  std::array<double, std::size_t{1} << kArcBits> sine;
  std::array<double, std::size_t{1} << kArcBits> cosine;
};
const AngleTable& angle_table(int level);

}  // namespace kvbench
