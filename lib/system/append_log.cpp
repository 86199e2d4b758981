#include "system/append_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "system/read_at.hpp"

namespace kvbench {

AppendLog::AppendLog(std::string path, Access access) : path_(std::move(path)) {
  const bool read_only = access == Access::kRead;
  // O_NONBLOCK opens a pipe without waiting for its other end.
  file_.reset(read_only ? ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)
                        : ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_.is_open()) {
    throw IoError(read_only ? system_error(path_, "open") : write_error(path_, "open"));
  }
  if (!is_regular()) return;
  size_ = ::lseek(file_.get(), 0, SEEK_END);
  if (size_ < 0) throw IoError(system_error(path_, "read"));
}

bool AppendLog::is_regular() const {
  struct stat status = {};
  return ::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode);
}

void AppendLog::cut(std::int64_t size) {
  if (::ftruncate(file_.get(), size) != 0) throw IoError(write_error(path_, "write"));
  size_ = size;
}

std::int64_t AppendLog::append(std::string_view record) {
  struct stat status = {};
  if (::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size < size_) {
    throw IoError(path_ +
                  ": was truncated by another program, and its records are lost; keep other "
                  "programs from writing to this folder");
  }
  std::size_t done = 0;
  while (done < record.size()) {
    const ssize_t written = ::pwrite(file_.get(), record.data() + done, record.size() - done,
                                     size_ + static_cast<std::int64_t>(done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (written == 0) errno = ENOSPC;
      const std::string error = write_error(path_, "write");
      if (::ftruncate(file_.get(), size_) == 0) throw IoError(error);
      throw IoError(error + " (part of a record remains at its end)");
    }
    done += written;
  }
  return std::exchange(size_, size_ + static_cast<std::int64_t>(record.size()));
}

std::size_t AppendLog::read_some(std::int64_t offset, std::span<char> to) const {
  const auto got = read_at(file_.get(), offset, to);
  if (!got) throw IoError(system_error(path_, "read"));
  return *got;
}

std::string AppendLog::read(std::int64_t offset, std::int64_t bytes) const {
  std::string text(bytes, '\0');
  if (read_some(offset, text) != text.size()) {
    throw IoError(path_ + ": was truncated while being read");
  }
  return text;
}

void AppendLog::sync() const {
  if (::fdatasync(file_.get()) != 0) throw IoError(write_error(path_, "write"));
}

}  // namespace kvbench
