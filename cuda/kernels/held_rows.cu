#include <memory>

#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/resident_rows.hpp"

namespace kvbench {

std::shared_ptr<const ResidentRows> CudaKernels::hold_rows(const Stream& stream,
                                                           const std::vector<Index>& rows) const {
  const auto make = [device = device_.get()] { return cuda::CudaMachine(*device); };
  return cuda::hold_rows(make, stream, rows);
}

}  // namespace kvbench
