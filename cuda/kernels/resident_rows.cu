#include <memory>

#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/resident_rows.hpp"

namespace kvbench {

std::shared_ptr<const ResidentRows> CudaKernels::make_rows_resident(
    const Stream& stream, const std::vector<Index>& rows) const {
  const auto make = [device = device_.get()] { return cuda::CudaMachine(*device); };
  return cuda::make_rows_resident(make, stream, rows);
}

}  // namespace kvbench
