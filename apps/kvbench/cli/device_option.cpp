#include "cli/device_option.hpp"

#include <utility>

#include "core/error.hpp"

#ifdef KVBENCH_HAS_CUDA_KERNELS
#include "cuda/cuda_kernels.hpp"
#include "cuda/devices.hpp"
#include "cuda/self_test.hpp"
#endif

namespace kvbench {

#ifdef KVBENCH_HAS_CUDA_KERNELS

struct ComputeDevice::Cuda {
  CudaKernels kernels;
  std::string runtime;
};

ComputeDevice::ComputeDevice(std::string asked) : asked_(std::move(asked)) {
  if (asked_ == "cpu") return;
  const CudaDevices found = cuda_devices();
  reason_ = found.reason;
  if (!found.devices.empty()) {
    try {
      auto cuda = std::make_unique<Cuda>();
      cuda->runtime = found.runtime;
      const std::string differing = cuda::kernel_that_differs(cuda->kernels);
      if (differing.empty()) {
        cuda_ = std::move(cuda);
        return;
      }
      reason_ = cuda->kernels.name() + ": " + differing + " differ from the CPU's";
    } catch (const InputError& error) {
      reason_ = error.what();
    } catch (const DeviceError& error) {
      reason_ = error.what();
    } catch (const CellError& error) {  // not even the small stream fits
      reason_ = error.what();
    }
  }
  if (asked_ == "cuda") {
    throw InputError("--device cuda: " + reason_ + "; use --device cpu or auto");
  }
}

const Kernels& ComputeDevice::kernels() const {
  return cuda_ ? static_cast<const Kernels&>(cuda_->kernels) : cpu_kernels();
}

void ComputeDevice::throw_if_failed() const {
  if (!cuda_) return;
  if (const std::string fault = cuda_->kernels.fault(); !fault.empty()) throw DeviceError(fault);
}

#else

struct ComputeDevice::Cuda {};

ComputeDevice::ComputeDevice(std::string asked) : asked_(std::move(asked)) {
  if (asked_ == "cpu") return;
  reason_ = "this build has no CUDA kernels";
  if (asked_ == "cuda") {
    throw InputError("--device cuda: " + reason_ + "; use --device cpu or auto");
  }
}

const Kernels& ComputeDevice::kernels() const { return cpu_kernels(); }

void ComputeDevice::throw_if_failed() const {}

#endif

ComputeDevice::~ComputeDevice() = default;

void ComputeDevice::describe(Json& provenance) const {
  provenance["gpu"] = nullptr;
  provenance["cuda"] = nullptr;
#ifdef KVBENCH_HAS_CUDA_KERNELS
  if (cuda_) {
    provenance["gpu"] = cuda_->kernels.name();
    provenance["cuda"] = cuda_->runtime;
  }
#endif
  provenance["device"] = {{"asked", asked_}, {"used", name()}};
  if (!reason_.empty()) provenance["device"]["reason"] = reason_;
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda, or auto: cuda where it works, else cpu")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str();
}

}  // namespace kvbench
