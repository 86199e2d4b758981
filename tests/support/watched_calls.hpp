// Which files a program flushes to the disk and renames, in order: a test program that links
// kvbench_watched_calls has its calls of fsync and rename written down.
#pragma once

#include <string>
#include <vector>

namespace kvbench::test {

// "fsync PATH", "rename FROM TO", since the list was cleared; not for several threads.
std::vector<std::string>& calls();

}  // namespace kvbench::test
