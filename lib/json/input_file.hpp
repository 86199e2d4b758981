// Files that a user names to be read.
#pragma once

#include <string>

namespace kvbench {

// Throws InputError where `path` is there and is not a regular file or a pipe of a shell: a folder,
// or a device or a named pipe, which may never end. `wanted` says what to name instead.
void refuse_device(const std::string& path, const std::string& wanted);

// All of a regular file or pipe; "-" is standard input. Throws InputError, also where there is more
// than 128 MiB or reading fails.
std::string read_text(const std::string& path, const std::string& wanted);

}  // namespace kvbench
