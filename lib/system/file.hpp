// Files: descriptors that close themselves, writing all of it, files that appear whole or not at
// all.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "system/error.hpp"

namespace kvbench {

// An open file descriptor, closed at the end of its life; -1: none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int descriptor) : descriptor_(descriptor) {}
  UniqueFd(UniqueFd&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(std::exchange(other.descriptor_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void reset(int descriptor = -1);  // keeps errno

 private:
  int descriptor_ = -1;
};

// "PATH: cannot WHAT: reason", the reason from errno.
std::string system_error(const std::string& path, const std::string& what);

// The same with a remedy, for what is to be written: "PATH: cannot WHAT: reason; remedy".
std::string write_error(const std::string& path, const std::string& what, int code = errno);

// Whether there is a file, folder or device at `path`. Throws IoError if the system cannot tell (a
// loop of links, a disk that fails): what is not known to be absent must not be replaced.
bool file_exists(const std::string& path);

// Writes all of `bytes` with as few write(2) calls as the system allows; false on an error (errno).
bool write_fully(int descriptor, std::string_view bytes);

// Puts the finished file `temporary` into place at `path`, on the same file system, so that a power
// cut leaves the earlier file or all of this one: its data is flushed to the disk before it is
// renamed, and the folder, which knows its name, after that. Throws IoError; `temporary` is left
// then.
void replace_file(const std::string& temporary, const std::string& path);

// A name next to `path` for what is to replace it: PATH.xxxxxxxx.tmp, with random digits, so that
// two programs that write the same file never write into one another's.
std::string temporary_name(const std::string& path);

// The name of the file that `temporary` was to replace, or nothing if it is not a temporary name.
// NAME.tmp counts as one: earlier versions wrote those.
std::string_view finished_name(std::string_view temporary);

// Removes what killed programs left of `path` under temporary names. The caller holds a lock that
// keeps others from writing `path`.
void remove_unfinished(const std::string& path);

// Collects a file under a temporary name of its own; commit() puts it into place by replace_file.
// Without commit() nothing remains. Every failure throws IoError.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  void flush_buffer();

  std::string path_;
  std::string temporary_;
  std::string buffer_;
  UniqueFd file_;
  bool in_place_ = false;
};

}  // namespace kvbench
