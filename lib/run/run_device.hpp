// The device that a run's kernels are computed on.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"
#include "kernels/kernels.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// The CPU; a device derives from it.
class RunDevice {
 public:
  RunDevice() = default;
  virtual ~RunDevice() = default;
  RunDevice(const RunDevice&) = delete;
  RunDevice& operator=(const RunDevice&) = delete;

  virtual const Kernels& kernels() const { return cpu_kernels(); }
  // The device as a cell's key has it.
  std::string name() const { return kernels().device(); }

  // Leaves the device for the CPU if a layer of the dumps has something that its kernels do not
  // compute. Throws InputError if the device was asked for by name.
  virtual void suit(const std::vector<PlannedDump>& /*dumps*/) {}

  // Throws DeviceError if the device failed for good.
  virtual void throw_if_failed() const {}

  // Adds what results.json's provenance says about the device.
  virtual void describe(Json& /*provenance*/) const {}
};

}  // namespace kvbench
