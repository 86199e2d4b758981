// Eight doubles at once, with the same bits on every instruction set: each lane is an IEEE chain of
// its own, a fused multiply-add is always fused, and sums over lanes have one fixed order.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

namespace kvbench {

struct Lanes {
  static constexpr int kCount = 8;

#if defined(__AVX512F__)
  __m512d v;
  static Lanes load(const double* p) { return {_mm512_loadu_pd(p)}; }
  static Lanes all(double x) { return {_mm512_set1_pd(x)}; }
  void store(double* p) const { _mm512_storeu_pd(p, v); }
  friend Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_pd(a.v, b.v)}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_pd(a.v, b.v)}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_pd(a.v, b.v)}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_pd(a.v, b.v)}; }
  static Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
  // The second if one is not a number.
  static Lanes max(Lanes a, Lanes b) { return {_mm512_max_pd(a.v, b.v)}; }
  static Lanes min(Lanes a, Lanes b) { return {_mm512_min_pd(a.v, b.v)}; }
  static Lanes abs(Lanes a) { return {_mm512_abs_pd(a.v)}; }
  // `value` if x >= limit, else 0.
  static Lanes zero_below(Lanes x, double limit, Lanes value) {
    return {
        _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(x.v, _mm512_set1_pd(limit), _CMP_GE_OQ), value.v)};
  }
  // `below` where x < limit, else `otherwise`.
  static Lanes choose_below(Lanes x, double limit, Lanes below, Lanes otherwise) {
    const __mmask8 is_below = _mm512_cmp_pd_mask(x.v, _mm512_set1_pd(limit), _CMP_LT_OQ);
    return {_mm512_mask_mov_pd(otherwise.v, is_below, below.v)};
  }
  static Lanes copy_sign(Lanes magnitude, Lanes sign) {
    const __m512i mask = _mm512_set1_epi64(static_cast<long long>(0x8000000000000000ULL));
    return {_mm512_castsi512_pd(
        _mm512_or_si512(_mm512_andnot_si512(mask, _mm512_castpd_si512(magnitude.v)),
                        _mm512_and_si512(mask, _mm512_castpd_si512(sign.v))))};
  }
  // 2^k for the integer k that shifted = k + 1.5 2^52 holds in its low bits.
  static Lanes power_of_two(Lanes shifted) {
    return {_mm512_castsi512_pd(_mm512_slli_epi64(
        _mm512_add_epi64(_mm512_castpd_si512(shifted.v), _mm512_set1_epi64(1023)), 52))};
  }
#elif defined(__AVX2__) && defined(__FMA__)
  __m256d a, b;
  static Lanes load(const double* p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
  static Lanes all(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
  void store(double* p) const {
    _mm256_storeu_pd(p, a);
    _mm256_storeu_pd(p + 4, b);
  }
  friend Lanes operator+(Lanes x, Lanes y) {
    return {_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b)};
  }
  friend Lanes operator-(Lanes x, Lanes y) {
    return {_mm256_sub_pd(x.a, y.a), _mm256_sub_pd(x.b, y.b)};
  }
  friend Lanes operator*(Lanes x, Lanes y) {
    return {_mm256_mul_pd(x.a, y.a), _mm256_mul_pd(x.b, y.b)};
  }
  friend Lanes operator/(Lanes x, Lanes y) {
    return {_mm256_div_pd(x.a, y.a), _mm256_div_pd(x.b, y.b)};
  }
  static Lanes fma(Lanes x, Lanes y, Lanes z) {
    return {_mm256_fmadd_pd(x.a, y.a, z.a), _mm256_fmadd_pd(x.b, y.b, z.b)};
  }
  static Lanes max(Lanes x, Lanes y) { return {_mm256_max_pd(x.a, y.a), _mm256_max_pd(x.b, y.b)}; }
  static Lanes min(Lanes x, Lanes y) { return {_mm256_min_pd(x.a, y.a), _mm256_min_pd(x.b, y.b)}; }
  static Lanes abs(Lanes x) {
    const __m256d sign = _mm256_set1_pd(-0.0);
    return {_mm256_andnot_pd(sign, x.a), _mm256_andnot_pd(sign, x.b)};
  }
  static Lanes zero_below(Lanes x, double limit, Lanes value) {
    const __m256d low = _mm256_set1_pd(limit);
    return {_mm256_and_pd(_mm256_cmp_pd(x.a, low, _CMP_GE_OQ), value.a),
            _mm256_and_pd(_mm256_cmp_pd(x.b, low, _CMP_GE_OQ), value.b)};
  }
  static Lanes choose_below(Lanes x, double limit, Lanes below, Lanes otherwise) {
    const __m256d high = _mm256_set1_pd(limit);
    return {_mm256_blendv_pd(otherwise.a, below.a, _mm256_cmp_pd(x.a, high, _CMP_LT_OQ)),
            _mm256_blendv_pd(otherwise.b, below.b, _mm256_cmp_pd(x.b, high, _CMP_LT_OQ))};
  }
  static Lanes copy_sign(Lanes magnitude, Lanes sign) {
    const __m256d mask = _mm256_set1_pd(-0.0);
    return {_mm256_or_pd(_mm256_andnot_pd(mask, magnitude.a), _mm256_and_pd(mask, sign.a)),
            _mm256_or_pd(_mm256_andnot_pd(mask, magnitude.b), _mm256_and_pd(mask, sign.b))};
  }
  static Lanes power_of_two(Lanes shifted) {
    const __m256i bias = _mm256_set1_epi64x(1023);
    return {_mm256_castsi256_pd(
                _mm256_slli_epi64(_mm256_add_epi64(_mm256_castpd_si256(shifted.a), bias), 52)),
            _mm256_castsi256_pd(
                _mm256_slli_epi64(_mm256_add_epi64(_mm256_castpd_si256(shifted.b), bias), 52))};
  }
#else
  std::array<double, 8> v;
  template <class F>
  static Lanes each(F f) {
    Lanes out;
    for (std::size_t i = 0; i < 8; ++i) out.v[i] = f(i);
    return out;
  }
  static Lanes load(const double* p) {
    return each([&](std::size_t i) { return p[i]; });
  }
  static Lanes all(double x) {
    return each([&](std::size_t) { return x; });
  }
  void store(double* p) const { std::memcpy(p, v.data(), sizeof(v)); }
  friend Lanes operator+(Lanes a, Lanes b) {
    return each([&](std::size_t i) { return a.v[i] + b.v[i]; });
  }
  friend Lanes operator-(Lanes a, Lanes b) {
    return each([&](std::size_t i) { return a.v[i] - b.v[i]; });
  }
  friend Lanes operator*(Lanes a, Lanes b) {
    return each([&](std::size_t i) { return a.v[i] * b.v[i]; });
  }
  friend Lanes operator/(Lanes a, Lanes b) {
    return each([&](std::size_t i) { return a.v[i] / b.v[i]; });
  }
  static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return each([&](std::size_t i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  static Lanes max(Lanes a, Lanes b) {
    return each([&](std::size_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Lanes min(Lanes a, Lanes b) {
    return each([&](std::size_t i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Lanes abs(Lanes a) {
    return each([&](std::size_t i) { return std::fabs(a.v[i]); });
  }
  static Lanes zero_below(Lanes x, double limit, Lanes value) {
    return each([&](std::size_t i) { return x.v[i] >= limit ? value.v[i] : 0.0; });
  }
  static Lanes choose_below(Lanes x, double limit, Lanes below, Lanes otherwise) {
    return each([&](std::size_t i) { return x.v[i] < limit ? below.v[i] : otherwise.v[i]; });
  }
  static Lanes copy_sign(Lanes magnitude, Lanes sign) {
    return each([&](std::size_t i) { return std::copysign(magnitude.v[i], sign.v[i]); });
  }
  static Lanes power_of_two(Lanes shifted) {
    return each([&](std::size_t i) {
      std::uint64_t bits;
      std::memcpy(&bits, &shifted.v[i], sizeof(bits));
      bits = (bits + 1023) << 52;
      double power;
      std::memcpy(&power, &bits, sizeof(power));
      return power;
    });
  }
#endif

  // Sum over the lanes as ((0+4)+(2+6)) + ((1+5)+(3+7)).
  double sum() const {
    alignas(64) double x[8];
    store(x);
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
  }
  double largest() const {
    alignas(64) double x[8];
    store(x);
    double m = x[0];
    for (int i = 1; i < 8; ++i) m = x[i] > m ? x[i] : m;
    return m;
  }
};

// The operations that numerics/canonical.hpp is written in.
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return Lanes::fma(a, b, c); }
inline Lanes at_least(Lanes x, Lanes limit) { return Lanes::max(x, limit); }
inline Lanes magnitude(Lanes x) { return Lanes::abs(x); }
inline Lanes with_sign_of(Lanes magnitude, Lanes sign) { return Lanes::copy_sign(magnitude, sign); }
inline Lanes zero_below(Lanes x, double limit, Lanes value) {
  return Lanes::zero_below(x, limit, value);
}
inline Lanes choose_below(Lanes x, double limit, Lanes below, Lanes otherwise) {
  return Lanes::choose_below(x, limit, below, otherwise);
}
inline Lanes power_of_two(Lanes shifted) { return Lanes::power_of_two(shifted); }

}  // namespace kvbench
