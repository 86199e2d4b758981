// Replaces the CUDA side in a build without it: no device, and the reason.
#include "cuda/device_peaks.hpp"
#include "cuda/devices.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr const char* kReason = "this build has no CUDA kernels: " KVBENCH_NO_CUDA;

}  // namespace

CudaDevices cuda_devices() { return {.devices = {}, .runtime = "", .reason = kReason}; }

std::unique_ptr<const DeviceKernels> cuda_kernels(int) { throw InputError(kReason); }

DevicePeaks measure_device_peaks(int) { throw InputError(kReason); }

}  // namespace kvbench
