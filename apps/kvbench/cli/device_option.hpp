// Where the kernels of a run are computed: `--device cpu|cuda|auto`.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cuda/devices.hpp"
#include "json/json.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

class ComputeDevice {
 public:
  // `asked`: "cpu", "cuda" or "auto". Throws InputError if cuda is asked for and cannot be used;
  // auto then computes on the CPU and records why in the provenance. A device is used after its
  // kernels gave the CPU's values on a small stream.
  explicit ComputeDevice(std::string asked);

  const Kernels& kernels() const;
  std::string name() const { return kernels().device(); }  // as in a cell's key

  // Leaves the device where a layer of the dumps has what its kernels do not compute: sinks, ALiBi,
  // rows that see later tokens. Throws InputError if cuda was asked for by name.
  void suit(const std::vector<PlannedDump>& dumps);

  // Throws DeviceError if the device failed for good.
  void throw_if_failed() const;

  // Sets `gpu`, `cuda` and `device` of results.json's provenance.
  void describe(Json& provenance) const;

 private:
  // The device's kernels if it works and gives the CPU's values; else null, and reason_ says why.
  std::unique_ptr<const DeviceKernels> try_cuda();

  std::string asked_;
  std::string reason_;                         // why auto fell back
  std::string runtime_;                        // CUDA's version, where it computes
  std::unique_ptr<const DeviceKernels> cuda_;  // null: the CPU
};

// For ComputeDevice; a cell's id depends on the device.
void add_device_option(CLI::App& command, std::string& device);

}  // namespace kvbench
