// The options by which every command names a sweep and narrows it.
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
