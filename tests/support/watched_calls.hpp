// Which files a program flushes to the disk and renames, in order. A test program that lists
// support/watched_calls.cpp among its sources has its calls of fsync and rename written down.
#pragma once

#include <string>
#include <vector>

namespace kvbench::test {

// "fsync PATH", "rename FROM TO", since the list was cleared; not for several threads.
std::vector<std::string>& calls();

}  // namespace kvbench::test
