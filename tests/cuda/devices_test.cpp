#include "cuda/devices.hpp"

#include <doctest/doctest.h>

#include "system/error.hpp"

TEST_CASE("without a device the kernel table on it says why it is not there") {
  if (!kvbench::cuda_devices().devices.empty()) return;
  CHECK_THROWS_AS(kvbench::cuda_kernels(), kvbench::InputError);
}

TEST_CASE("devices are listed, or the reason why there are none") {
  const kvbench::CudaDevices found = kvbench::cuda_devices();
  CHECK(found.reason.empty() == !found.devices.empty());
  const bool built_in = found.reason.find("this build has no CUDA kernels: ") != 0;
  CHECK(built_in == (found.runtime.find('.') != std::string::npos));
  MESSAGE(found.reason);
  for (const kvbench::CudaDevice& device : found.devices) {
    CHECK(!device.name.empty());
    CHECK(device.memory_bytes > 0);
    CHECK(device.compute_major > 0);
  }
}
