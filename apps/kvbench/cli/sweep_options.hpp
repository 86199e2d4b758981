// The options by which commands name a sweep and narrow it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvbench {

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

inline void add_shard_option(CLI::App& command, std::string& shard) {
  command
      .add_option("--shard", shard,
                  "Only part i of n, dealt by estimated cost; `kvbench merge` joins the parts")
      ->type_name("i/n");
}

}  // namespace kvbench
