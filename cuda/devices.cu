#include <cuda_runtime_api.h>

#include <string>

#include "cuda/devices.hpp"

namespace kvbench {
namespace {

// CUDA's version numbers: 1000 major + 10 minor; 0 if there is no driver.
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string why_none(cudaError_t error) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  switch (error) {
    case cudaErrorInsufficientDriver:
      return driver == 0 ? "no NVIDIA driver is installed"
                         : "the NVIDIA driver supports CUDA " + version(driver) +
                               ", this program was built with CUDA " + version(CUDART_VERSION) +
                               ": a newer driver is needed";
    case cudaErrorNoDevice:
      return "the NVIDIA driver sees no device (is CUDA_VISIBLE_DEVICES set?)";
    default:
      return std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  }
}

}  // namespace

CudaDevices cuda_devices() {
  CudaDevices found;
  found.runtime = version(CUDART_VERSION);
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  for (int index = 0; error == cudaSuccess && index < count; ++index) {
    cudaDeviceProp properties;
    error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) break;
    found.devices.push_back({.index = index,
                             .name = properties.name,
                             .compute_major = properties.major,
                             .compute_minor = properties.minor,
                             .multiprocessors = properties.multiProcessorCount,
                             .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)});
  }
  if (found.devices.empty()) {
    found.reason = why_none(error == cudaSuccess ? cudaErrorNoDevice : error);
  }
  return found;
}

}  // namespace kvbench
