// The device on which a run's kernels are computed: cpu, cuda or auto.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/devices.hpp"
#include "json/json.hpp"
#include "run/run_device.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

class ComputeDevice : public RunDevice {
 public:
  // `asked`: "cpu", "cuda" or "auto". Throws InputError if cuda is asked for and cannot be used;
  // auto then computes on the CPU and records why in the provenance. A device is used after its
  // kernels gave the CPU's values on a small stream.
  explicit ComputeDevice(std::string asked);

  const Kernels& kernels() const override;

  // Sinks, ALiBi and rows that see later tokens are computed on the CPU alone.
  void suit(const std::vector<PlannedDump>& dumps) override;

  void throw_if_failed() const override;

  // Sets `gpu`, `cuda` and `device`.
  void describe(Json& provenance) const override;

 private:
  // The device's kernels if it works and gives the CPU's values; else null, and reason_ says why.
  std::unique_ptr<const DeviceKernels> try_cuda();

  std::string asked_;
  std::string reason_;                         // why auto fell back
  std::string runtime_;                        // CUDA's version, where it computes
  std::unique_ptr<const DeviceKernels> cuda_;  // null: the CPU
};

}  // namespace kvbench
