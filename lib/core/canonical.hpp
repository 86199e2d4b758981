// Canonical arithmetic: values that decide something have one definition, operation by operation,
// so that their bits depend neither on blocking, threads, instruction set nor device. Every
// function has a scalar form and, where it is used in bulk, a form over Lanes with equal bits.
#pragma once

#include <cmath>

#include "core/lanes.hpp"
#include "core/matrix_view.hpp"

namespace kvbench {

// <a, b>: a fused multiply-add chain from index 0 up.
inline double canonical_dot(const double* a, const double* b, Index d) {
  double sum = 0.0;
  for (Index k = 0; k < d; ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

// ||a - b||^2: difference, then a fused multiply-add chain from index 0 up.
inline double squared_distance(const double* a, const double* b, Index d) {
  double sum = 0.0;
  for (Index k = 0; k < d; ++k) {
    const double difference = a[k] - b[k];
    sum = std::fma(difference, difference, sum);
  }
  return sum;
}

// exp(x), relative error below 1.2e-16 + half an ulp (measured in tests), for x <= 709; exactly 0
// for x < -708 (no subnormal results). NaN is not expected.
inline Lanes canonical_exp(Lanes x) {
  // Range reduction x = k ln 2 + r, |r| <= ln(2)/2 (Cody and Waite), then the Taylor polynomial of
  // degree 13, whose remainder is below 5e-18 there.
  const Lanes shift = Lanes::all(0x1.8p52);
  const Lanes bounded = Lanes::max(x, Lanes::all(-709.0));
  const Lanes shifted = Lanes::fma(bounded, Lanes::all(0x1.71547652b82fep0), shift);
  const Lanes k = shifted - shift;
  Lanes r = Lanes::fma(k, Lanes::all(-0x1.62e42fefa3800p-1), bounded);
  r = Lanes::fma(k, Lanes::all(-0x1.ef35793c76730p-45), r);
  Lanes p = Lanes::all(1.0 / 6227020800.0);
  p = Lanes::fma(p, r, Lanes::all(1.0 / 479001600.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 39916800.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 3628800.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 362880.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 40320.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 5040.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 720.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 120.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 24.0));
  p = Lanes::fma(p, r, Lanes::all(1.0 / 6.0));
  p = Lanes::fma(p, r, Lanes::all(0.5));
  p = Lanes::fma(p, r, Lanes::all(1.0));
  p = Lanes::fma(p, r, Lanes::all(1.0));
  return Lanes::zero_below(x, -708.0, p * Lanes::power_of_two(shifted));
}

inline double canonical_exp(double x) {
  alignas(64) double out[Lanes::kCount];
  canonical_exp(Lanes::all(x)).store(out);
  return out[0];
}

// Natural logarithm of a positive normal number, absolute error below 3e-16 (1 + |ln x|).
inline double canonical_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2.0;
    --exponent;
  }
  // m in [sqrt(1/2), sqrt(2)): ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.1716. The series
  // to s^23 leaves a remainder below 1e-19.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) sum = std::fma(sum, s2, 1.0 / k);
  const double log_m = std::fma(2.0 * s * s2, sum, 2.0 * s);
  const double k = exponent;
  return std::fma(k, 0x1.62e42fefa3800p-1, std::fma(k, 0x1.ef35793c76730p-45, log_m));
}

// cap tanh(x / cap), absolute error below 4e-16 cap.
inline Lanes canonical_softcap(Lanes x, double cap) {
  const Lanes one = Lanes::all(1.0);
  const Lanes y = x / Lanes::all(cap);
  const Lanes e = canonical_exp(Lanes::all(-2.0) * Lanes::abs(y));
  return Lanes::all(cap) * Lanes::copy_sign((one - e) / (one + e), y);
}

inline double canonical_softcap(double x, double cap) {
  alignas(64) double out[Lanes::kCount];
  canonical_softcap(Lanes::all(x), cap).store(out);
  return out[0];
}

}  // namespace kvbench
