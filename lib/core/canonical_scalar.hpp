// The canonical arithmetic one number at a time, for processors without Lanes: one source for the
// host and for CUDA devices. Every function has the bits of its namesake in core/canonical.hpp;
// a test compares them over millions of numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define KVBENCH_HOST_DEVICE __host__ __device__
#else
#define KVBENCH_HOST_DEVICE
#endif

namespace kvbench::scalar {

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

// One step of canonical_dot: `sum` over the dimensions before this one.
struct DotStep {
  KVBENCH_HOST_DEVICE static double next(double a, double b, double sum) {
    return fused(a, b, sum);
  }
};

// One step of squared_distance.
struct DistanceStep {
  KVBENCH_HOST_DEVICE static double next(double a, double b, double sum) {
    const double difference = a - b;
    return fused(difference, difference, sum);
  }
};

// Both from index 0 up.
template <class Step>
KVBENCH_HOST_DEVICE inline double chain(const double* a, const double* b, std::int64_t d) {
  double sum = 0.0;
  for (std::int64_t k = 0; k < d; ++k) sum = Step::next(a[k], b[k], sum);
  return sum;
}

KVBENCH_HOST_DEVICE inline double canonical_exp(double x) {
  const double shift = 0x1.8p52;
  const double bounded = x > -709.0 ? x : -709.0;
  const double shifted = fused(bounded, 0x1.71547652b82fep0, shift);
  const double k = shifted - shift;
  double r = fused(k, -0x1.62e42fefa3800p-1, bounded);
  r = fused(k, -0x1.ef35793c76730p-45, r);
  double p = 1.0 / 6227020800.0;
  p = fused(p, r, 1.0 / 479001600.0);
  p = fused(p, r, 1.0 / 39916800.0);
  p = fused(p, r, 1.0 / 3628800.0);
  p = fused(p, r, 1.0 / 362880.0);
  p = fused(p, r, 1.0 / 40320.0);
  p = fused(p, r, 1.0 / 5040.0);
  p = fused(p, r, 1.0 / 720.0);
  p = fused(p, r, 1.0 / 120.0);
  p = fused(p, r, 1.0 / 24.0);
  p = fused(p, r, 1.0 / 6.0);
  p = fused(p, r, 0.5);
  p = fused(p, r, 1.0);
  p = fused(p, r, 1.0);
  return x >= -708.0 ? p * from_bits((bits_of(shifted) + 1023) << 52) : 0.0;
}

// Of a positive normal number.
KVBENCH_HOST_DEVICE inline double canonical_log(double x) {
  const std::uint64_t bits = bits_of(x);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  double m = from_bits((bits & 0x000fffffffffffffULL) | 0x3fe0000000000000ULL);  // [0.5, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 3; k -= 2) sum = fused(sum, s2, 1.0 / k);
  const double log_m = fused(2.0 * s * s2, sum, 2.0 * s);
  const double k = exponent;
  return fused(k, 0x1.62e42fefa3800p-1, fused(k, 0x1.ef35793c76730p-45, log_m));
}

KVBENCH_HOST_DEVICE inline double canonical_softcap(double x, double cap) {
  const double y = x / cap;
  const double e = canonical_exp(-2.0 * fabs(y));
  return cap * copysign((1.0 - e) / (1.0 + e), y);
}

// Lanes::sum of eight partial sums.
KVBENCH_HOST_DEVICE inline double lanes_sum(const double* x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

}  // namespace kvbench::scalar
