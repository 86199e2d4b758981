// The best that this machine can do, measured in the same run as the benchmarks: no program that
// does the same arithmetic, or reads the same memory, is faster.
#pragma once

#include "numerics/matrix_view.hpp"

namespace kvbench::bench {

struct Floor {
  double fma_flops_one = 0.0;   // double-precision fused multiply-adds, 2 flops each, one thread
  double fma_flops_all = 0.0;   // all threads
  double exps_all = 0.0;        // canonical exponentials per second, all threads
  double read_bytes_one = 0.0;  // memory read, bytes per second
  double read_bytes_all = 0.0;
  int threads = 1;
};

// Seconds that this thread has had a processor: others' work on the machine is not counted.
double thread_seconds();

// Measured at the first call, best of ten short runs, those of one thread by its own seconds: a
// busy neighbour only makes it worse.
const Floor& machine_floor();

// Seconds below which the work cannot be done.
double exact_attention_floor(Index pairs, Index d, Index dv);

}  // namespace kvbench::bench
