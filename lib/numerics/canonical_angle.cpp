#include "numerics/canonical_angle.hpp"

#include <cmath>
#include <numbers>

#include "numerics/canonical.hpp"

namespace kvbench {
namespace {

constexpr double kHalfPi = 0x1.921fb54442d18p0;
constexpr double kHalfPiRest = 0x1.1a62633145c07p-54;  // pi / 2 - kHalfPi

// Taylor's series on |r| <= pi / 4; what follows r^17 and r^16 is below 1e-19 and 3e-18.
double sine_series(double r) {
  const double r2 = r * r;
  double p = 1.0 / 355687428096000.0;
  p = fused(p, r2, -1.0 / 1307674368000.0);
  p = fused(p, r2, 1.0 / 6227020800.0);
  p = fused(p, r2, -1.0 / 39916800.0);
  p = fused(p, r2, 1.0 / 362880.0);
  p = fused(p, r2, -1.0 / 5040.0);
  p = fused(p, r2, 1.0 / 120.0);
  p = fused(p, r2, -1.0 / 6.0);
  return fused(r * r2, p, r);
}

double cosine_series(double r) {
  const double r2 = r * r;
  double p = 1.0 / 20922789888000.0;
  p = fused(p, r2, -1.0 / 87178291200.0);
  p = fused(p, r2, 1.0 / 479001600.0);
  p = fused(p, r2, -1.0 / 3628800.0);
  p = fused(p, r2, 1.0 / 40320.0);
  p = fused(p, r2, -1.0 / 720.0);
  p = fused(p, r2, 1.0 / 24.0);
  p = fused(p, r2, -0.5);
  return fused(r2, p, 1.0);
}

// Taylor's series of the arc tangent on |z| <= 1 / 16; what follows z^13 is below 6e-20.
double arc_series(double z) {
  const double z2 = z * z;
  double p = 1.0 / 13.0;
  p = fused(p, z2, -1.0 / 11.0);
  p = fused(p, z2, 1.0 / 9.0);
  p = fused(p, z2, -1.0 / 7.0);
  p = fused(p, z2, 1.0 / 5.0);
  p = fused(p, z2, -1.0 / 3.0);
  return fused(z * z2, p, z);
}

// The arc tangents of k / 8.
constexpr double kArcs[] = {0.0,
                            0.12435499454676144,
                            0.24497866312686414,
                            0.35877067027057225,
                            0.4636476090008061,
                            0.5585993153435624,
                            0.6435011087932844,
                            0.7188299996216245,
                            0.7853981633974483};

// Arc tangent of low / high, 0 <= low <= high > 0.
double arc_of_quotient(double low, double high) {
  const int k = static_cast<int>(std::nearbyint(8.0 * (low / high)));
  const double c = k / 8.0;
  return kArcs[k] + arc_series(fused(-c, high, low) / fused(c, low, high));
}

}  // namespace

SineCosine canonical_sine_cosine(double x) {
  const double k = std::nearbyint(x / kHalfPi);
  const double r = fused(-k, kHalfPiRest, fused(-k, kHalfPi, x));
  const double sine = sine_series(r);
  const double cosine = cosine_series(r);
  switch (static_cast<long>(k) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

double canonical_angle(double x, double y) {
  const double across = std::fabs(x);
  const double up = std::fabs(y);
  if (across == 0.0 && up == 0.0) return 0.0;
  double angle = up <= across ? arc_of_quotient(up, across) : kHalfPi - arc_of_quotient(across, up);
  if (x < 0.0) angle = std::numbers::pi - angle;
  return y < 0.0 ? 2.0 * std::numbers::pi - angle : angle;
}

}  // namespace kvbench
