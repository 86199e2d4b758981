#include "system/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace kvbench {
namespace {

// Whether the open file is still the one at `path`: another program may have removed it, with its
// lock, between open() and flock().
bool is_at(int descriptor, const std::string& path) {
  struct stat open = {};
  struct stat named = {};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

}  // namespace

FileLock::FileLock(std::string path, After after) : path_(std::move(path)), after_(after) {
  do {
    file_.reset(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file_.is_open()) throw IoError(write_error(path_, "write"));
    is_held_ = lock();
  } while (is_held_ && !is_at(file_.get(), path_));
}

FileLock::~FileLock() {
  if (after_ == After::kRemoveFile && (is_held_ || !unsupported_.empty())) ::unlink(path_.c_str());
}

bool FileLock::lock() {
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  const bool cannot_lock = errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP;
  std::string error = system_error(path_, "lock");
  if (!cannot_lock) throw IoError(error);
  unsupported_ = std::move(error);
  return false;
}

}  // namespace kvbench
