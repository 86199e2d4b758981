#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/score_sums.hpp"

namespace kvbench {

std::vector<ScoreSums> CudaKernels::score_sums_by(const Stream& stream, Index first, Index last,
                                                  const std::vector<ScoreRule>& rules) const {
  cuda::CudaMachine machine(*device_);
  return cuda::score_sums(machine, stream, first, last, rules);
}

}  // namespace kvbench
