// Files that only grow, one record after another: what journals are kept in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "system/file.hpp"

namespace kvbench {

// A record is there whole once append() returns, and not at all if it throws; a kill in the middle
// may leave part of one at the end. The reader of the file's format knows what a whole record is:
// it scans the file and cuts off what follows the last one. Every failure throws IoError that names
// the file. For one thread, except sync(), which another may call meanwhile.
class AppendLog {
 public:
  enum class Access {
    kRead,
    kWrite,  // created if it does not exist
  };
  AppendLog(std::string path, Access access);

  const std::string& path() const { return path_; }
  // Bytes up to where the next record goes.
  std::int64_t size() const { return size_; }
  // Drops all bytes from `size` on.
  void cut(std::int64_t size);
  // Returns the offset of `record`. Throws also if another program has truncated the file.
  std::int64_t append(std::string_view record);

  bool is_regular() const;  // not a pipe or a device

  // Fills `to` from `offset` on and returns the bytes read: fewer only at the end of the file.
  std::size_t read_some(std::int64_t offset, std::span<char> to) const;
  // Throws also if the file ends before.
  std::string read(std::int64_t offset, std::int64_t bytes) const;

  // Flushes the file to the disk.
  void sync() const;

 private:
  std::string path_;
  UniqueFd file_;
  std::int64_t size_ = 0;
};

}  // namespace kvbench
