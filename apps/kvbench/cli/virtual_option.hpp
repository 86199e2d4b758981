// --allow-virtual: dumps whose tensors are put together from other files.
#pragma once

#include <CLI/CLI.hpp>

namespace kvbench {

inline void add_allow_virtual(CLI::App& command, bool& allowed) {
  command.add_flag("--allow-virtual", allowed,
                   "Read virtual datasets made of files in the dump's own folder");
}

}  // namespace kvbench
