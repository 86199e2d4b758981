// Files that appear whole or not at all.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace kvbench {

// The output place failed while work was under way (disk full, folder gone): what was finished
// before is kept, and the run can be resumed.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "PATH: cannot WHAT: reason", the reason from errno.
std::string system_fault(const std::string& path, const std::string& what);

// Writes all of `bytes` with as few write(2) calls as the system allows; false on an error (errno).
bool write_fully(int descriptor, std::string_view bytes);

// Collects a file under a temporary name beside `path`; commit() flushes it to the disk and renames
// it into place. Without commit() nothing remains. Every failure throws OutputError.
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
  int descriptor_ = -1;
};

}  // namespace kvbench
