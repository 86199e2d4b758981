#include "system/read_at.hpp"

#include <unistd.h>

#include <cerrno>

namespace kvbench {

std::optional<std::size_t> read_at(int descriptor, std::int64_t offset, std::span<char> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::pread(descriptor, to.data() + done, to.size() - done,
                                static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace kvbench
