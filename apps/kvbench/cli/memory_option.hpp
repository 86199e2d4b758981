// --memory-limit: what a command refuses to exceed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "cli/byte_size.hpp"

namespace kvbench {

// 0 where it is not given.
inline void add_memory_limit(CLI::App& command, std::uint64_t& bytes) {
  command
      .add_option("--memory-limit", bytes,
                  "Refuse what needs more, e.g. 4GiB; default: what this process may use")
      ->type_name("SIZE")
      ->transform(CLI::Validator(to_bytes, ""));
}

}  // namespace kvbench
