// A lock between programs: flock(2) on a file.
#pragma once

#include <string>

#include "system/file.hpp"

namespace kvbench {

class FileLock {
 public:
  enum class After { kKeepFile, kRemoveFile };

  // Creates the file at `path` if needed and tries to lock it for the object's lifetime, without
  // waiting. `after`: whether the file goes with the lock. Throws IoError if it cannot be written.
  FileLock(std::string path, After after);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool is_held() const { return is_held_; }
  // The system's error if the file system cannot lock files (some Lustre and NFS mounts). If it is
  // empty and the lock is not held, another program holds it.
  const std::string& unsupported() const { return unsupported_; }

 private:
  bool lock();

  std::string path_;
  After after_;
  UniqueFd file_;
  bool is_held_ = false;
  std::string unsupported_;
};

}  // namespace kvbench
