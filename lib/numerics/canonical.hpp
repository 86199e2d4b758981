// Canonical arithmetic: values that decide something have one definition, operation by operation,
// so that their bits depend neither on blocking, threads, instruction set nor device. Functions
// used in bulk take a double, on the host and on CUDA devices, or Lanes (numerics/lanes.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "numerics/host_device.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// a b + c, rounded once.
KVBENCH_HOST_DEVICE inline double fused(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

KVBENCH_HOST_DEVICE inline std::uint64_t bits_of(double x) {
  std::uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

KVBENCH_HOST_DEVICE inline double from_bits(std::uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// The operations of canonical_exp and canonical_softcap on one number; lanes.hpp has those on
// eight. The larger; the limit if x is not a number.
KVBENCH_HOST_DEVICE inline double at_least(double x, double limit) { return x > limit ? x : limit; }
KVBENCH_HOST_DEVICE inline double magnitude(double x) { return fabs(x); }
KVBENCH_HOST_DEVICE inline double with_sign_of(double magnitude, double sign) {
  return copysign(magnitude, sign);
}
// `value` if x >= limit, else 0.
KVBENCH_HOST_DEVICE inline double zero_below(double x, double limit, double value) {
  return x >= limit ? value : 0.0;
}
// `below` where x < limit, else `otherwise`.
KVBENCH_HOST_DEVICE inline double choose_below(double x, double limit, double below,
                                               double otherwise) {
  return x < limit ? below : otherwise;
}
// 2^k for the integer k that shifted = k + 1.5 2^52 holds in its low bits.
KVBENCH_HOST_DEVICE inline double power_of_two(double shifted) {
  return from_bits((bits_of(shifted) + 1023) << 52);
}
// x in every element of a T.
template <class T>
KVBENCH_HOST_DEVICE inline T all_of(double x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return T::all(x);
  }
}

// One step of canonical_dot, and of squared_distance: `sum` over the dimensions before this one.
struct DotStep {
  KVBENCH_HOST_DEVICE static double next(double a, double b, double sum) {
    return fused(a, b, sum);
  }
};
struct DistanceStep {
  KVBENCH_HOST_DEVICE static double next(double a, double b, double sum) {
    const double difference = a - b;
    return fused(difference, difference, sum);
  }
};

// <a, b>: a fused multiply-add chain from index 0 up.
KVBENCH_HOST_DEVICE inline double canonical_dot(const double* a, const double* b, Index d) {
  double sum = 0.0;
  for (Index k = 0; k < d; ++k) sum = DotStep::next(a[k], b[k], sum);
  return sum;
}

// ||a - b||^2: difference, then a fused multiply-add chain from index 0 up.
KVBENCH_HOST_DEVICE inline double squared_distance(const double* a, const double* b, Index d) {
  double sum = 0.0;
  for (Index k = 0; k < d; ++k) sum = DistanceStep::next(a[k], b[k], sum);
  return sum;
}

// exp(x), relative error below 1.2e-16 + half an ulp (measured in tests), for x <= 709; exactly 0
// for x < -708 (no subnormal results) and if x is not a number.
template <class T>
KVBENCH_HOST_DEVICE inline T canonical_exp(T x) {
  // Range reduction x = k ln 2 + r, |r| <= ln(2)/2 (Cody and Waite), then the Taylor polynomial of
  // degree 13, whose remainder is below 5e-18 there.
  const T shift = all_of<T>(0x1.8p52);
  const T bounded = at_least(x, all_of<T>(-709.0));
  const T shifted = fused(bounded, all_of<T>(0x1.71547652b82fep0), shift);
  const T k = shifted - shift;
  T r = fused(k, all_of<T>(-0x1.62e42fefa3800p-1), bounded);
  r = fused(k, all_of<T>(-0x1.ef35793c76730p-45), r);
  T p = all_of<T>(1.0 / 6227020800.0);
  p = fused(p, r, all_of<T>(1.0 / 479001600.0));
  p = fused(p, r, all_of<T>(1.0 / 39916800.0));
  p = fused(p, r, all_of<T>(1.0 / 3628800.0));
  p = fused(p, r, all_of<T>(1.0 / 362880.0));
  p = fused(p, r, all_of<T>(1.0 / 40320.0));
  p = fused(p, r, all_of<T>(1.0 / 5040.0));
  p = fused(p, r, all_of<T>(1.0 / 720.0));
  p = fused(p, r, all_of<T>(1.0 / 120.0));
  p = fused(p, r, all_of<T>(1.0 / 24.0));
  p = fused(p, r, all_of<T>(1.0 / 6.0));
  p = fused(p, r, all_of<T>(0.5));
  p = fused(p, r, all_of<T>(1.0));
  p = fused(p, r, all_of<T>(1.0));
  return zero_below(x, -708.0, p * power_of_two(shifted));
}

// Natural logarithm of a positive normal number, absolute error below 3e-16 (1 + |ln x|).
KVBENCH_HOST_DEVICE inline double canonical_log(double x) {
  // x = m 2^exponent, m in [sqrt(1/2), sqrt(2)).
  const std::uint64_t bits = bits_of(x);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  double m = from_bits((bits & 0x000fffffffffffffULL) | 0x3fe0000000000000ULL);  // [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2.0;
    --exponent;
  }
  // ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.1716. The series to s^23 leaves a remainder
  // below 1e-19.
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) sum = fused(sum, s2, 1.0 / k);
  const double log_m = fused(2.0 * s * s2, sum, 2.0 * s);
  const double k = exponent;
  return fused(k, 0x1.62e42fefa3800p-1, fused(k, 0x1.ef35793c76730p-45, log_m));
}

// Soft-caps of models are at most 50 or so. Those above this one are computed in two parts.
inline constexpr double kLargestPlainCap = 128.0;
// Below this a logit over a large cap is a small one.
inline constexpr double kSmallOverCap = 0.125;

// cap tanh(y) of y = x / cap, |y| < kSmallOverCap, relative error below 2e-16. The Taylor series of
// tanh alternates, so that what follows y^15 is below 5.9e-4 y^17, relatively 2.1e-18. The largest
// term is x itself: no logit changes where y^2 / 3 < 2^-54, a cap beyond 7.8e7 times the logit.
template <class T>
KVBENCH_HOST_DEVICE inline T softcap_of_small(T x, T y) {
  const T y2 = y * y;
  T p = all_of<T>(-929569.0 / 638512875.0);
  p = fused(p, y2, all_of<T>(21844.0 / 6081075.0));
  p = fused(p, y2, all_of<T>(-1382.0 / 155925.0));
  p = fused(p, y2, all_of<T>(62.0 / 2835.0));
  p = fused(p, y2, all_of<T>(-17.0 / 315.0));
  p = fused(p, y2, all_of<T>(2.0 / 15.0));
  p = fused(p, y2, all_of<T>(-1.0 / 3.0));
  return fused(x * y2, p, x);
}

// cap tanh(x / cap). Absolute error below 4e-16 cap for a cap of at most kLargestPlainCap: 1 - e
// cancels for a small y. Next to a larger cap that would drown the logits (at 1e20 all would be 0),
// so there the small ones come from the series: relative error below 2e-15 (for |y| >= 1/8,
// 1 - e >= 0.22 has an absolute error below 2.5e-16).
template <class T>
KVBENCH_HOST_DEVICE inline T canonical_softcap(T x, double cap) {
  const T one = all_of<T>(1.0);
  const T y = x / all_of<T>(cap);
  const T e = canonical_exp(all_of<T>(-2.0) * magnitude(y));
  const T capped = all_of<T>(cap) * with_sign_of((one - e) / (one + e), y);
  if (cap <= kLargestPlainCap) return capped;
  return choose_below(magnitude(y), kSmallOverCap, softcap_of_small(x, y), capped);
}

// ALiBi: the logit x of row i and token j = i + distance.
KVBENCH_HOST_DEVICE inline double alibi_logit(double x, double slope, Index distance) {
  return fused(slope, static_cast<double>(distance), x);
}

// The sum of eight partial sums, in the order of Lanes::sum.
KVBENCH_HOST_DEVICE inline double lanes_sum(const double* x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

}  // namespace kvbench
