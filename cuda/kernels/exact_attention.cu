#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/exact_attention.hpp"

namespace kvbench {

ExactRows CudaKernels::exact_attention(const Stream& stream, std::vector<Index> rows) const {
  const auto make = [device = device_.get()] { return cuda::CudaMachine(*device); };
  return cuda::exact_attention(make, stream, std::move(rows));
}

}  // namespace kvbench
