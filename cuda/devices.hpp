// The CUDA devices of this machine and the kernel table on one of them, the same in builds with and
// without CUDA (unavailable.cpp). Plain C++: callers need no CUDA header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernels.hpp"

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
  std::string runtime;  // version of the CUDA runtime built in, as "13.0"; empty where none is
  std::string reason;   // why `devices` is empty; empty otherwise
};

// Never throws for the lack of a driver or a device: that is `reason`.
CudaDevices cuda_devices();

// The kernel table on a device. Calls of several threads run side by side, each on a CUDA stream of
// its own; what they allocate is reserved before. A call that does not fit works on fewer rows at a
// time. Throws CellError where not even one row fits, DeviceError once the device failed.
class DeviceKernels : public Kernels {
 public:
  virtual std::string name() const = 0;   // "NVIDIA H200"
  virtual std::string error() const = 0;  // why the device failed; empty while it works
};

// Throws InputError with the reason where the machine has no device `index` that works.
std::unique_ptr<const DeviceKernels> cuda_kernels(int index = 0);

}  // namespace kvbench
