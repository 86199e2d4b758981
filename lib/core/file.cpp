#include "core/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace kvbench {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

void UniqueFd::reset(int descriptor) {
  const int before = std::exchange(descriptor_, descriptor);
  if (before < 0) return;
  const int error = errno;
  ::close(before);
  errno = error;
}

std::string system_error(const std::string& path, const std::string& what) {
  return path + ": cannot " + what + ": " + std::strerror(errno);
}

bool file_exists(const std::string& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (error) throw IoError(path + ": cannot look it up: " + error.message());
  return there;
}

bool write_fully(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void replace_file(const std::string& temporary, const std::string& path) {
  UniqueFd file(::open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) throw IoError(system_error(temporary, "open"));
  if (::fsync(file.get()) != 0) throw IoError(system_error(temporary, "write"));
  file.reset();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    throw IoError(system_error(path, "put into place"));
  }
  // Not every file system can flush a folder, and not every folder that is written may be read.
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.is_open()) ::fsync(opened.get());
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      temporary_(path_ + ".tmp"),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) throw IoError(system_error(temporary_, "create"));
}

AtomicFile::~AtomicFile() {
  if (!in_place_) ::unlink(temporary_.c_str());
}

void AtomicFile::flush_buffer() {
  if (!write_fully(file_.get(), buffer_)) throw IoError(system_error(temporary_, "write"));
  buffer_.clear();
}

void AtomicFile::write(std::string_view bytes) {
  buffer_.append(bytes);
  if (buffer_.size() >= kBufferBytes) flush_buffer();
}

void AtomicFile::commit() {
  flush_buffer();
  file_.reset();
  replace_file(temporary_, path_);
  in_place_ = true;
}

}  // namespace kvbench
