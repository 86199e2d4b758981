// The options by which commands name a sweep and narrow it: a file, or dumps, algorithms and their
// parameters on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "run/repro_command.hpp"
#include "sweep/read_sweep.hpp"

namespace kvbench {

struct SweepOptions {
  std::string config;  // file; "-": standard input
  std::vector<std::string> dumps;
  std::vector<std::string> algorithms;
  std::map<std::string, std::string> params;  // by name; empty: not given
  std::string storage;                        // as in a sweep, or several with commas between
  std::string memory;                         // parts of the exact cache's memory
  std::string seeds;                          // how many, or several with commas between
  std::string layers;
  std::string kv_heads;
  std::string prompt_tokens;
  std::vector<std::string> sets;
  std::vector<std::string> only;

  // `sets` after what --seeds, --layers, --kv-heads and --prompt-tokens set. Throws InputError
  // where one of them and a set are of the same value.
  std::vector<std::string> all_sets() const;
};

void add_sweep_options(CLI::App& command, SweepOptions& options);
CLI::Option* add_shard_option(CLI::App& command, std::string& shard);

// The sweep that they describe. Throws InputError where both a file and dumps or algorithms are
// given, or neither; else as read_sweep() with ErrorPolicy::kKeep.
SweepConfig read_sweep_options(const SweepOptions& options);

// The same sweep as `repro` of a record names it.
SweepSource source_of(const SweepOptions& options);

}  // namespace kvbench
