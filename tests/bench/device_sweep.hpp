// A sweep as a user would run it, on some kernels and on two cores.
#pragma once

#include <map>
#include <string>

#include "bench/timed_kernels.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::bench {

struct DeviceSweep {
  Index tokens = 0;
  int heads = 0;
  int cells = 0;      // cells of all heads
  int cpu_heads = 0;  // that two cores replayed: all heads are alike
  int host_threads = 0;
  double device_seconds = 0.0;
  double cpu_seconds = 0.0;
  std::map<std::string, TimedKernels::Calls> calls;  // calls of the device's kernel table

  double cpu_seconds_for_all() const { return cpu_seconds * heads / cpu_heads; }
  double ratio() const { return cpu_seconds_for_all() / device_seconds; }
};

// 1024 cells of 13 settings over 64 heads of n = 8192, d = 128, four query heads each, 256 scored
// rows. A cell that fails throws CellError.
DeviceSweep time_device_sweep(const Kernels& kernels);

}  // namespace kvbench::bench
