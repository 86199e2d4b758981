// The options by which every command names a sweep, narrows it and says where it is computed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

struct SweepOptions {
  std::string config;
  std::vector<std::string> sets;
  std::vector<std::string> only;
};

inline void add_sweep_options(CLI::App& command, SweepOptions& options) {
  command.add_option("--config", options.config, "Sweep file (JSON, configs/README.md)")
      ->type_name("FILE")
      ->required();
  command
      .add_option("--set", options.sets,
                  "Replace a value of the sweep: JSON pointer = JSON value; may be repeated")
      ->type_name("POINTER=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--only", options.only,
                  "Only cells whose id or algorithm/label/sequence/layer/head matches; * stays "
                  "within a part; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
}

// For ComputeDevice; a cell's id says which device it is of.
inline void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda, or auto: cuda where it works, else cpu")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->capture_default_str();
}

inline void add_shard_option(CLI::App& command, std::string& shard) {
  command
      .add_option("--shard", shard,
                  "Only part i of n, dealt by estimated cost; `kvbench merge` joins the parts")
      ->type_name("i/n");
}
