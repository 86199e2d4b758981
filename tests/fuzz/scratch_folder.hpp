// The folder that a fuzz target's process writes into, in memory where the system has a file system
// there.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "fuzz/promise.hpp"

namespace kvbench::fuzz {

class ScratchFolder {
 public:
  ScratchFolder() {
    const std::filesystem::path memory = "/dev/shm";
    const auto base =
        std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
    path_ = (base / "kvbench-fuzz-XXXXXX").string();
    promise(::mkdtemp(path_.data()) != nullptr, "cannot make a folder in " + base.string());
  }
  ~ScratchFolder() {
    if (::getpid() != maker_) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  pid_t maker_ = ::getpid();
};

inline const ScratchFolder kScratchFolder;

}  // namespace kvbench::fuzz
