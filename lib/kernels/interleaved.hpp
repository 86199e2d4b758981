// Eight rows of doubles, copied dimension by dimension.
#pragma once

#include "numerics/lanes.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// to[k * stride + r] = from[r][k] for r < 8 and k < d.
inline void interleave(const double* const* from, Index d, double* to, Index stride) {
  Index k = 0;
#ifdef __AVX2__
  for (; k + 4 <= d; k += 4) {
    for (Index r = 0; r < Lanes::kCount; r += 4) {  // four rows of four numbers, transposed
      const __m256d a = _mm256_loadu_pd(from[r] + k);
      const __m256d b = _mm256_loadu_pd(from[r + 1] + k);
      const __m256d c = _mm256_loadu_pd(from[r + 2] + k);
      const __m256d e = _mm256_loadu_pd(from[r + 3] + k);
      const __m256d ab_even = _mm256_unpacklo_pd(a, b);
      const __m256d ab_odd = _mm256_unpackhi_pd(a, b);
      const __m256d ce_even = _mm256_unpacklo_pd(c, e);
      const __m256d ce_odd = _mm256_unpackhi_pd(c, e);
      double* const at = to + k * stride + r;
      _mm256_storeu_pd(at, _mm256_permute2f128_pd(ab_even, ce_even, 0x20));
      _mm256_storeu_pd(at + stride, _mm256_permute2f128_pd(ab_odd, ce_odd, 0x20));
      _mm256_storeu_pd(at + 2 * stride, _mm256_permute2f128_pd(ab_even, ce_even, 0x31));
      _mm256_storeu_pd(at + 3 * stride, _mm256_permute2f128_pd(ab_odd, ce_odd, 0x31));
    }
  }
#endif
  for (; k < d; ++k) {
    for (Index r = 0; r < Lanes::kCount; ++r) to[k * stride + r] = from[r][k];
  }
}

}  // namespace kvbench
