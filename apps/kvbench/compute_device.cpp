#include "compute_device.hpp"

#include <fmt/format.h>

#include <utility>

#include "cuda/self_test.hpp"
#include "system/error.hpp"

namespace kvbench {

std::unique_ptr<const DeviceKernels> ComputeDevice::try_cuda() {
  const CudaDevices found = cuda_devices();
  reason_ = found.reason;
  if (found.devices.empty()) return nullptr;
  try {
    auto kernels = cuda_kernels();
    const std::string differing = cuda::kernel_that_differs(*kernels);
    if (differing.empty()) {
      runtime_ = found.runtime;
      return kernels;
    }
    reason_ = kernels->name() + ": " + differing + " differ from the CPU's";
  } catch (const InputError& error) {
    reason_ = error.what();
  } catch (const DeviceError& error) {
    reason_ = error.what();
  } catch (const CellError& error) {  // not even the small stream fits
    reason_ = error.what();
  }
  return nullptr;
}

ComputeDevice::ComputeDevice(std::string asked) : asked_(std::move(asked)) {
  if (asked_ == "cpu") return;
  cuda_ = try_cuda();
  if (asked_ == "cuda" && !cuda_) {
    throw InputError("--device: cuda cannot be used: " + reason_ + "; use --device cpu or auto");
  }
}

namespace {

// The part of a layer that the device's kernels do not compute; null: nothing.
const char* beyond_device(const StreamShape& shape) {
  if (shape.sinks) return "sinks";
  if (shape.alibi) return "alibi_slopes";
  return shape.causal ? nullptr : "causal = 0";
}

}  // namespace

void ComputeDevice::suit(const std::vector<PlannedDump>& dumps) {
  if (asked_ == "cpu") return;
  for (const PlannedDump& dump : dumps) {
    for (const PlannedSequence& sequence : dump.sequences) {
      for (const PlannedLayer& layer : sequence.layers) {
        const char* what = beyond_device(layer.shape);
        if (what == nullptr) continue;
        reason_ = fmt::format("layer {} of sequence {} of {} has {}, computed on the CPU alone",
                              layer.index, sequence.name, dump.path, what);
        cuda_.reset();
        if (asked_ == "auto") return;
        throw InputError("--device: cuda cannot be used: " + reason_ +
                         "; use --device cpu or auto");
      }
    }
  }
}

const Kernels& ComputeDevice::kernels() const {
  return cuda_ ? static_cast<const Kernels&>(*cuda_) : cpu_kernels();
}

void ComputeDevice::throw_if_failed() const {
  if (!cuda_) return;
  if (const std::string problem = cuda_->error(); !problem.empty()) throw DeviceError(problem);
}

void ComputeDevice::describe(Json& provenance) const {
  provenance["gpu"] = nullptr;
  provenance["cuda"] = nullptr;
  if (cuda_) {
    provenance["gpu"] = cuda_->name();
    provenance["cuda"] = runtime_;
  }
  provenance["device"] = {{"asked", asked_}, {"used", name()}};
  if (!reason_.empty()) provenance["device"]["reason"] = reason_;
}

}  // namespace kvbench
