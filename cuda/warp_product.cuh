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

// c += a b by the 32 lanes of a warp: c is 16 x 8, a 16 x 4, b 4 x 8. Lane l has c's rows l / 4
// (`upper`) and 8 + l / 4 (`lower`) at columns 2 (l % 4) and 2 (l % 4) + 1, a's same rows at column
// l % 4, b's row l % 4 at column l / 4: the layout of PTX's mma for f64 (PTX ISA, "Matrix Fragments
// for mma.m8n8k4 with .f64", and m16n8k4, which is two of these one above the other). A tensor core
// of sm_90 is at its full speed only with the larger shape, which sm_80 does not have.
__device__ __forceinline__ void warp_multiply_add(double (&upper)[2], double (&lower)[2],
                                                  double a_upper, double a_lower, double b) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
      "{%0, %1, %2, %3};"
      : "+d"(upper[0]), "+d"(upper[1]), "+d"(lower[0]), "+d"(lower[1])
      : "d"(a_upper), "d"(a_lower), "d"(b));
#elif __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(upper[0]), "+d"(upper[1])
      : "d"(a_upper), "d"(b));
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(lower[0]), "+d"(lower[1])
      : "d"(a_lower), "d"(b));
#else
  const WarpSums sums =
      shuffled_multiply_add({{upper[0], upper[1]}, {lower[0], lower[1]}}, a_upper, a_lower, b);
  upper[0] = sums.upper[0];
  upper[1] = sums.upper[1];
  lower[0] = sums.lower[0];
  lower[1] = sums.lower[1];
#endif
}

}  // namespace kvbench::cuda
