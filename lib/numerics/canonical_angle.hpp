// Angles with the same bits on every machine, as canonical.hpp has exponentials.
#pragma once

namespace kvbench {

struct SineCosine {
  double sine;
  double cosine;
};

// Sine and cosine of |x| <= 100; absolute errors below 4e-16.
SineCosine canonical_sine_cosine(double x);

// The angle of (x, y) in [0, 2 pi], relative error below 4e-16; 0 of (0, 0). Neither the quotient
// of x and y nor its inverse may be subnormal, or the angle is rounded to the axis.
double canonical_angle(double x, double y);

}  // namespace kvbench
