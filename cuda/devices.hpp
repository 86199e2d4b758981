// The CUDA devices of this machine. Plain C++: callers need no CUDA header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvbench {

struct CudaDevice {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

struct CudaDevices {
  std::vector<CudaDevice> devices;
  std::string runtime;  // version of the CUDA runtime built in, as "13.0"
  std::string reason;   // why `devices` is empty; empty otherwise
};

// Never throws for the lack of a driver or a device: that is `reason`.
CudaDevices cuda_devices();

}  // namespace kvbench
