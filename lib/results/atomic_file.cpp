#include "results/atomic_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace kvbench {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

std::string system_fault(const std::string& path, const std::string& what) {
  return path + ": cannot " + what + ": " + std::strerror(errno);
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

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw OutputError(system_fault(temporary_, "create"));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::flush_buffer() {
  if (!write_fully(descriptor_, buffer_)) throw OutputError(system_fault(temporary_, "write"));
  buffer_.clear();
}

void AtomicFile::write(std::string_view bytes) {
  buffer_.append(bytes);
  if (buffer_.size() >= kBufferBytes) flush_buffer();
}

void AtomicFile::commit() {
  flush_buffer();
  if (::fsync(descriptor_) != 0) throw OutputError(system_fault(temporary_, "write"));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw OutputError(system_fault(path_, "put into place"));
  }
  ::close(std::exchange(descriptor_, -1));
  // The rename itself survives a power cut only once the folder is on the disk.
  const std::filesystem::path folder = std::filesystem::absolute(path_).parent_path();
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened >= 0) {
    ::fsync(opened);
    ::close(opened);
  }
}

}  // namespace kvbench
