#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/logits.hpp"

namespace kvbench {

void CudaKernels::logits(const Stream& stream, std::vector<Index> rows, LogitBlock& out) const {
  cuda::CudaMachine machine(*device_);
  cuda::logits(machine, stream, std::move(rows), out);
}

}  // namespace kvbench
