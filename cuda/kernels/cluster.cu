#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/cluster.hpp"

namespace kvbench {

Clustering CudaKernels::cluster(ConstMatrix points, Index first, double delta) const {
  cuda::CudaMachine machine(*device_);
  return cuda::cluster(machine, points, first, delta);
}

}  // namespace kvbench
