// How much memory this process may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvbench {

// Bytes: the least of the machine's memory and the limit of the control groups that hold this
// process, both as the first call finds them, and the limit of its address space now.
std::uint64_t usable_memory();

// The least limit of the control group of this process and of those above it, up to the root that
// is mounted: cgroup v2, or the memory controller of v1. None if no group has a limit. `root`: the
// folder that stands for /, for tests.
std::optional<std::uint64_t> control_group_limit(const std::string& root = "");

}  // namespace kvbench
