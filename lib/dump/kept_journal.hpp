// What cells kept, in the order in which they finished: what cache files are put together from, and
// again after a kill, since HDF5 does not survive one in the middle of a write.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/append_log.hpp"
#include "core/kept_cache.hpp"

namespace kvbench {

// A file that only grows, one record per cell, each written at once and carrying its checksum; what
// follows the last whole record is cut off when it is opened for writing. Bytes are this machine's:
// the file exists during an unfinished run and nowhere else.
class KeptJournal {
 public:
  // Throws IoError.
  KeptJournal(const std::string& path, AppendLog::Access access);

  // The last record of a cell wins. Throws IoError.
  void append(const std::string& cell_id, const KeptRows& kept);
  // Throws IoError if it cannot be read.
  KeptRows read(const std::string& cell_id) const;
  bool has(const std::string& cell_id) const { return offset_of_.count(cell_id) != 0; }
  bool is_empty() const { return offset_of_.empty(); }

 private:
  std::string path_;
  AppendLog log_;
  std::map<std::string, std::int64_t> offset_of_;
};

}  // namespace kvbench
