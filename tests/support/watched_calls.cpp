#include "support/watched_calls.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstddef>

namespace kvbench::test {

std::vector<std::string>& calls() {
  static std::vector<std::string> all;
  return all;
}

}  // namespace kvbench::test

// These take the place of the C library's in a program that links this file.
extern "C" int fsync(int descriptor) {
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  char path[PATH_MAX];
  const ssize_t size = readlink(link.c_str(), path, sizeof path);
  kvbench::test::calls().push_back(
      "fsync " + std::string(path, size > 0 ? static_cast<std::size_t>(size) : 0));
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  kvbench::test::calls().push_back(std::string("rename ") + from + " " + to);
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
