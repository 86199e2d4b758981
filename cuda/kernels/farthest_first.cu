#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/farthest_first.hpp"

namespace kvbench {

Centers CudaKernels::farthest_first(ConstMatrix points, Index first, Index last, Index start,
                                    Index count) const {
  cuda::CudaMachine machine(*device_);
  return cuda::farthest_first(machine, points, first, last, start, count);
}

}  // namespace kvbench
