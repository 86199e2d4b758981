#include "kernels/cpu_kernels.hpp"

namespace kvbench {

const Kernels& cpu_kernels() {
  static const CpuKernels kernels;
  return kernels;
}

}  // namespace kvbench
