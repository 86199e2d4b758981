#include "cuda/devices.hpp"

#include <doctest/doctest.h>

TEST_CASE("devices are listed, or the reason why there are none") {
  const kvbench::CudaDevices found = kvbench::cuda_devices();
  CHECK(found.reason.empty() == !found.devices.empty());
  CHECK(found.runtime.find('.') != std::string::npos);
  MESSAGE(found.reason);
  for (const kvbench::CudaDevice& device : found.devices) {
    CHECK(!device.name.empty());
    CHECK(device.memory_bytes > 0);
    CHECK(device.compute_major > 0);
  }
}
