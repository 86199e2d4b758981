// The one place that knows how a warp multiplies on each generation of devices.
#pragma once

namespace kvbench::cuda {

#if __CUDA_ARCH__ < 800
struct WarpSums {
  double upper[2];
  double lower[2];
};

// Without tensor cores for doubles: a call, not a copy at each of hundreds of places, which ptxas
// takes many minutes for.
static __device__ __noinline__ WarpSums shuffled_multiply_add(WarpSums c, double a_upper,
                                                              double a_lower, double b) {
  constexpr unsigned kAll = 0xffffffffU;
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const double x = __shfl_sync(kAll, a_upper, lane / 4 * 4 + k);
    const double y = __shfl_sync(kAll, a_lower, lane / 4 * 4 + k);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const double z = __shfl_sync(kAll, b, (lane % 4 * 2 + e) * 4 + k);
      c.upper[e] = __fma_rn(x, z, c.upper[e]);
      c.lower[e] = __fma_rn(y, z, c.lower[e]);
    }
  }
  return c;
}
#endif

// c += a b by the 32 lanes of a warp, kSteps times, one step after the other in a and b: c is 16 x
// 8, a 16 x 4, b 4 x 8. Lane l has c's rows l / 4 (`upper`) and 8 + l / 4 (`lower`) at columns 2 (l
// % 4) and 2 (l % 4) + 1, a's same rows at column l % 4, b's row l % 4 at column l / 4: the layout
// of PTX's mma for f64 (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64", m16n8k4, ..
// m16n8k16). A tensor core of sm_90 is at its full speed only with the larger shapes, which sm_80
// does not have, and is kept busy with fewer instructions by the longer ones.
template <int kSteps>
__device__ __forceinline__ void warp_multiply_add(double (&upper)[2], double (&lower)[2],
                                                  const double (&a_upper)[kSteps],
                                                  const double (&a_lower)[kSteps],
                                                  const double (&b)[kSteps]) {
#if __CUDA_ARCH__ >= 900
  static_assert(kSteps == 1 || kSteps == 2 || kSteps == 4);
  if constexpr (kSteps == 1) {
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+d"(upper[0]), "+d"(upper[1]), "+d"(lower[0]), "+d"(lower[1])
        : "d"(a_upper[0]), "d"(a_lower[0]), "d"(b[0]));
  } else if constexpr (kSteps == 2) {
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+d"(upper[0]), "+d"(upper[1]), "+d"(lower[0]), "+d"(lower[1])
        : "d"(a_upper[0]), "d"(a_lower[0]), "d"(a_upper[1]), "d"(a_lower[1]), "d"(b[0]), "d"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, "
        "%9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(upper[0]), "+d"(upper[1]), "+d"(lower[0]), "+d"(lower[1])
        : "d"(a_upper[0]), "d"(a_lower[0]), "d"(a_upper[1]), "d"(a_lower[1]), "d"(a_upper[2]),
          "d"(a_lower[2]), "d"(a_upper[3]), "d"(a_lower[3]), "d"(b[0]), "d"(b[1]), "d"(b[2]),
          "d"(b[3]));
  }
#else
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(upper[0]), "+d"(upper[1])
        : "d"(a_upper[s]), "d"(b[s]));
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(lower[0]), "+d"(lower[1])
        : "d"(a_lower[s]), "d"(b[s]));
#else
    const WarpSums sums = shuffled_multiply_add({{upper[0], upper[1]}, {lower[0], lower[1]}},
                                                a_upper[s], a_lower[s], b[s]);
    upper[0] = sums.upper[0];
    upper[1] = sums.upper[1];
    lower[0] = sums.lower[0];
    lower[1] = sums.lower[1];
#endif
  }
#endif
}

}  // namespace kvbench::cuda
