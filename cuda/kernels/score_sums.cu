#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/score_sums.hpp"

namespace kvbench {

std::vector<std::vector<double>> CudaKernels::score_sums(const Stream& stream, Index first,
                                                         Index last, const ScoreRule& rule) const {
  cuda::CudaMachine machine(*device_);
  return cuda::score_sums(machine, stream, first, last, rule);
}

}  // namespace kvbench
