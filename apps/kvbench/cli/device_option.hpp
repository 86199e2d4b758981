// --device: where a command computes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kvbench {

// Adds the option of ComputeDevice (compute_device.hpp); a cell's id depends on the device.
inline void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda, or auto: cuda where it works, else cpu")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str();
}

}  // namespace kvbench
