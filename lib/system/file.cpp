#include "system/file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <vector>

namespace kvbench {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

constexpr std::string_view kTemporary = ".tmp";
constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::size_t kRandomDigits = 8;

const char* remedy_for(int code) {
  switch (code) {
    case ENOSPC:
    case EDQUOT:
      return "free disk space";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f)";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    case EACCES:
    case EPERM:
      return "change its permissions, or choose another --out";
    case EIO:
      return "check the disk, or choose another --out";
    default:
      return "choose another --out";
  }
}

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

std::string write_error(const std::string& path, const std::string& what, int code) {
  return path + ": cannot " + what + ": " + std::strerror(code) + "; " + remedy_for(code);
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
    bytes.remove_prefix(written);
  }
  return true;
}

void replace_file(const std::string& temporary, const std::string& path) {
  UniqueFd file(::open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) throw IoError(write_error(path, "write"));
  if (::fsync(file.get()) != 0) throw IoError(write_error(path, "write"));
  file.reset();
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    throw IoError(write_error(path, "put into place"));
  }
  // Not every file system can flush a folder, and not every folder that is written may be read.
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  const UniqueFd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.is_open()) ::fsync(opened.get());
}

std::string temporary_name(const std::string& path) {
  std::random_device random;
  std::string name = path + ".";
  for (std::size_t i = 0; i < kRandomDigits; ++i) name += kHexDigits[random() % kHexDigits.size()];
  return name.append(kTemporary);
}

std::string_view finished_name(std::string_view temporary) {
  if (!temporary.ends_with(kTemporary)) return {};
  std::string_view name = temporary.substr(0, temporary.size() - kTemporary.size());
  if (name.size() > kRandomDigits + 1) {
    const std::string_view end = name.substr(name.size() - kRandomDigits - 1);
    if (end[0] == '.' && end.find_first_not_of(kHexDigits, 1) == std::string_view::npos) {
      name.remove_suffix(end.size());
    }
  }
  return name;
}

void remove_unfinished(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path file = fs::absolute(path, ignored);
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), ignored)) {
    if (finished_name(entry.path().filename().native()) == file.filename().native()) {
      left.push_back(entry.path());
    }
  }
  for (const fs::path& each : left) fs::remove(each, ignored);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      temporary_(temporary_name(path_)),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) throw IoError(write_error(path_, "create"));
}

AtomicFile::~AtomicFile() {
  if (!in_place_) ::unlink(temporary_.c_str());
}

void AtomicFile::flush_buffer() {
  if (!write_fully(file_.get(), buffer_)) throw IoError(write_error(path_, "write"));
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
