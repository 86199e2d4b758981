// Records that may be more than memory should hold: what is not kept lies in a file without a name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "system/file.hpp"

namespace kvbench {

// Bytes, added one record after another and read in any order. The last few MiB are in memory, what
// came before in a temporary file that goes with the object or its process; 8 bytes per record
// stay.
class RecordStore {
 public:
  // `folder`: where the file is made once one is needed; empty: the system's folder for such files
  // (TMPDIR, else /tmp).
  explicit RecordStore(std::string folder = "");

  // Returns the place of the record: 0, 1, .. Throws IoError.
  std::size_t add(std::string_view record);
  std::size_t size() const { return offsets_.size(); }

  // Bytes that all of its objects may have in memory, besides 8 per record.
  static double most_bytes();

  // Reads ahead where records are read in order. Threads read at once, each with a reader of its
  // own, while nothing is added.
  class Reader {
   public:
    explicit Reader(const RecordStore& store) : store_(store) {}
    // Valid until the next call. Throws IoError.
    std::string_view at(std::size_t record);

   private:
    const RecordStore& store_;
    std::string window_;
    std::uint64_t window_begin_ = 0;  // offset in the file
    std::size_t last_ = 0;            // the record that was read last
  };

 private:
  std::uint64_t end_of(std::size_t record) const;
  void flush();
  void read(std::uint64_t offset, std::string& bytes) const;

  std::string folder_;
  UniqueFd file_;
  std::uint64_t in_file_ = 0;  // bytes
  std::string buffer_;         // behind them
  std::deque<std::uint64_t> offsets_;
};

}  // namespace kvbench
