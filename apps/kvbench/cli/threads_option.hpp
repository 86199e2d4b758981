// --threads: how many a command computes on.
#pragma once

#include <CLI/CLI.hpp>

namespace kvbench {

// 0 where it is not given.
inline void add_threads_option(CLI::App& command, int& threads) {
  command.add_option("--threads", threads, "Threads; default: all the process may use")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

}  // namespace kvbench
