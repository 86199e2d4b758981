#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/value_norms.hpp"

namespace kvbench {

void CudaKernels::value_norms(const Stream& stream, const std::vector<Index>& rows,
                              std::vector<double>& spectral, std::vector<double>& frobenius) const {
  cuda::CudaMachine machine(*device_);
  cuda::value_norms(machine, stream, rows, spectral, frobenius);
}

}  // namespace kvbench
