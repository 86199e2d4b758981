#include "json/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "system/error.hpp"
#include "system/file.hpp"

namespace kvbench {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{128} << 20;
constexpr std::size_t kChunk = std::size_t{1} << 16;

// Whether it is a pipe in a folder, which waits for somebody to open its other end; those of a
// shell lie in a file system of their own.
bool is_named_pipe(const struct stat& status) {
  int ends[2];
  if (!S_ISFIFO(status.st_mode) || pipe2(ends, O_CLOEXEC) != 0) return false;
  const UniqueFd from(ends[0]), into(ends[1]);
  struct stat made = {};
  return ::fstat(from.get(), &made) == 0 && made.st_dev != status.st_dev;
}

void refuse_kind(const struct stat& status, const std::string& path, const std::string& wanted) {
  const mode_t mode = status.st_mode;
  if (S_ISREG(mode) || (S_ISFIFO(mode) && !is_named_pipe(status))) return;
  const char* kind = S_ISDIR(mode) ? "is a folder" : "is not a regular file";
  throw InputError(path + ": " + kind + "; " + wanted);
}

}  // namespace

void refuse_device(const std::string& path, const std::string& wanted) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) refuse_kind(status, path, wanted);
}

std::string read_text(const std::string& path, const std::string& wanted) {
  UniqueFd opened;
  int descriptor = STDIN_FILENO;
  if (path != "-") {
    refuse_device(path, wanted);  // before it is opened: opening a device can do something
    opened.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    descriptor = opened.get();
    if (!opened.is_open()) throw InputError(system_error(path, "read") + "; " + wanted);
  }
  std::string text;
  struct stat status = {};
  const auto size = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size
                                                                                 : std::size_t{0};
  if (size <= kMaxBytes) text.reserve(size + kChunk);
  for (;;) {
    const std::size_t held = text.size();
    if (std::max(held, size) > kMaxBytes) {
      throw InputError(path + ": is larger than 128 MiB; " + wanted);
    }
    text.resize(held + kChunk);
    const ssize_t got = ::read(descriptor, text.data() + held, kChunk);
    text.resize(held + (got > 0 ? got : 0));
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) throw InputError(system_error(path, "read") + "; " + wanted);
  }
}

}  // namespace kvbench
