#include "storage/angle_codes.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "numerics/canonical.hpp"
#include "numerics/canonical_angle.hpp"
#include "storage/lloyd_max.hpp"

namespace kvbench {
namespace {

using Vector = std::vector<double>;

// Points of angles in [0, pi / 2] at levels 2, 3 and 4, with x = psi - pi / 4: the density is
// cos(2 x)^power.
Vector angle_points(int level) {
  const int power = (1 << (level - 1)) - 1;
  Vector points = lloyd_max_points({std::numbers::pi / 4,
                                    [power](double x) {
                                      const double cosine = canonical_sine_cosine(2.0 * x).cosine;
                                      double out = 1.0;
                                      for (int i = 0; i < power; ++i) out *= cosine;
                                      return out;
                                    }},
                                   kAngleBits);
  for (double& x : points) x += std::numbers::pi / 4;
  return points;
}

// The same, computed once.
const Vector& points_of(int level) {
  static const std::array points = {angle_points(2), angle_points(3), angle_points(4)};
  return points[level - 2];
}

std::uint32_t arc_of(double angle) {
  return static_cast<std::uint32_t>(std::min(15.0, std::floor(angle / (std::numbers::pi / 8))));
}

// The lower one where two are equally near.
std::uint32_t nearest(int level, double angle) {
  const Vector& points = points_of(level);
  std::uint32_t code = 0;
  for (std::size_t i = 1; i < points.size(); ++i) {
    code += angle > 0.5 * (points[i - 1] + points[i]) ? 1 : 0;
  }
  return code;
}

// Tangents of the three angles in (0, pi / 2) where codes change: multiples of pi / 8, or the
// middles between points.
std::array<double, 3> border_tangents(int level) {
  std::array<double, 3> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double border = level == 1 ? (i + 1) * (std::numbers::pi / 8)
                                     : 0.5 * (points_of(level)[i] + points_of(level)[i + 1]);
    const SineCosine of = canonical_sine_cosine(border);
    out[i] = of.sine / of.cosine;
  }
  return out;
}

// The same, computed once.
const std::array<double, 3>& tangents(int level) {
  static const std::array all = {border_tangents(1), border_tangents(2), border_tangents(3),
                                 border_tangents(4)};
  return all[level - 1];
}

// How far, in parts of |x| + |y|, the products below may be from the border and leave the code in
// doubt. At a distance of t from the border's line in these parts the angle is cos(border) t off
// it or more, and a border's cosine is above 0.2: 2e-13, where all roundings of tangents, products
// and canonical angles together are below 1e-14.
constexpr double kInDoubt = 1e-12;
// Smaller numbers, whose products may be subnormal, are in doubt.
constexpr double kTooSmall = 1e-290;

std::uint64_t flag(bool is) { return is ? 1 : 0; }
double smaller(double a, double b) { return a < b ? a : b; }

AngleTable table_of(int level) {
  AngleTable out{};
  const std::size_t codes = std::size_t{1} << angle_bits(level);
  for (std::size_t code = 0; code < codes; ++code) {
    const double angle =
        level == 1 ? (code + 0.5) * (std::numbers::pi / 8) : points_of(level)[code];
    const SineCosine of = canonical_sine_cosine(angle);
    out.sine[code] = of.sine;
    out.cosine[code] = of.cosine;
  }
  return out;
}

}  // namespace

std::uint64_t angle_code(int level, double x, double y) {
  const double angle = canonical_angle(x, y);
  return level == 1 ? arc_of(angle) : nearest(level, angle);
}

void find_angle_codes(int level, const double* x, const double* y, Index count,
                      std::uint64_t* codes) {
  const auto [first, second, third] = tangents(level);
  std::uint64_t doubts = 0;
  for (Index t = 0; t < count; ++t) {
    const double across = std::fabs(x[t]);
    const double up = std::fabs(y[t]);
    const double from_first = up - first * across;
    const double from_second = up - second * across;
    const double from_third = up - third * across;
    const double from_borders = smaller(smaller(std::fabs(from_first), std::fabs(from_second)),
                                        smaller(std::fabs(from_third), smaller(across, up)));
    std::uint64_t code = flag(from_first > 0.0) + flag(from_second > 0.0) + flag(from_third > 0.0);
    code ^= flag(x[t] < 0.0) * 7;   // 7 - code
    code ^= flag(y[t] < 0.0) * 15;  // 15 - code
    doubts += flag(!(from_borders > kInDoubt * (across + up) + kTooSmall));
    codes[t] = code;
  }
  if (doubts == 0) return;
  for (Index t = 0; t < count; ++t) codes[t] = angle_code(level, x[t], y[t]);
}

const AngleTable& angle_table(int level) {
  static const std::array all = {table_of(1), table_of(2), table_of(3), table_of(4)};
  return all[level - 1];
}

}  // namespace kvbench
