#include <memory>

#include "cuda/cuda_machine.cuh"
#include "cuda/kernels/weighted_values.hpp"

namespace kvbench {

std::shared_ptr<const void> CudaKernels::make_resident(const Stream& stream) const {
  cuda::CudaMachine machine(*device_);
  return cuda::make_resident(machine, stream);
}

std::unique_ptr<WeightedValues> CudaKernels::weighted_values(ConstMatrix values) const {
  const auto make = [device = device_.get()] { return cuda::CudaMachine(*device); };
  return std::make_unique<cuda::DeviceWeightedValues<decltype(make)>>(values, make);
}

}  // namespace kvbench
