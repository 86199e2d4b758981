#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/exact_attention.hpp"

namespace kvbench {

ExactRows CudaKernels::exact_attention(const Stream& stream, std::vector<Index> rows) const {
  cuda::CudaMachine machine(*device_);
  return cuda::exact_attention(machine, stream, std::move(rows));
}

}  // namespace kvbench
