#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/balance_walk.hpp"

namespace kvbench {

std::shared_ptr<const WalkMatrices> CudaKernels::walk_matrices(const std::vector<Index>& sizes,
                                                               const WalkSource& tokens) const {
  cuda::CudaMachine machine(*device_);
  return cuda::walk_matrices(machine, sizes, tokens);
}

std::vector<WalkResult> CudaKernels::balance_walks(
    const WalkRule& rule, const WalkMatrices& matrices,
    const std::vector<std::vector<double>>& uniforms) const {
  cuda::CudaMachine machine(*device_);
  return cuda::balance_walks(machine, rule, matrices, uniforms);
}

std::vector<WalkResult> CudaKernels::balance_walks(
    const WalkRule& rule, const WalkSource& tokens,
    const std::vector<std::vector<double>>& uniforms) const {
  cuda::CudaMachine machine(*device_);
  return cuda::balance_walks(machine, rule, tokens, uniforms);
}

}  // namespace kvbench
