// What cells leave while a run works, in the order in which they finished. HDF5 does not survive a
// kill in the middle of a write: the run's HDF5 files are made from this at its end.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/append_log.hpp"

namespace kvbench {

// A file that only grows, one record per cell, each written at once and carrying its checksum; what
// follows the last whole record is cut off when it is opened for writing. What a record holds is
// its writer's; its bytes are this machine's, for the file exists during an unfinished run and
// nowhere else.
class CellLog {
 public:
  // `kind`: of the records. Those of another kind end the file. Throws IoError.
  CellLog(const std::string& path, std::uint64_t kind, AppendLog::Access access);

  // The last record of a cell wins. Throws IoError.
  void append(const std::string& cell_id, std::string_view body);
  // The body of a cell's record; throws IoError if it cannot be read.
  std::string read(const std::string& cell_id) const;
  bool has(const std::string& cell_id) const { return offset_of_.count(cell_id) != 0; }
  // Per cell, the offset of its record; ascending ids.
  const std::map<std::string, std::int64_t>& cells() const { return offset_of_; }

 private:
  std::string path_;
  AppendLog log_;
  std::uint64_t kind_;
  std::map<std::string, std::int64_t> offset_of_;
};

}  // namespace kvbench
