// Log of what cells leave while a run works, in the order in which they finished. HDF5 does not
// survive a kill in the middle of a write: the run's HDF5 files are made from this at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "system/append_log.hpp"
#include "system/hash.hpp"
#include "system/key_index.hpp"

namespace kvbench {

// A file that only grows, one record per cell, each written at once and carrying its checksum; what
// follows the last whole record is cut off when it is opened for writing. The writer decides what a
// record holds; its bytes are this machine's, for the file exists during an unfinished run and
// nowhere else.
class CellLog {
 public:
  // `kind`: of the records. Those of another kind end the file. Throws IoError.
  CellLog(const std::string& path, std::uint64_t kind, AppendLog::Access access);

  // The last record of a cell wins. Throws IoError.
  void append(const std::string& cell_id, std::string_view body);
  // The body of a cell's record; throws IoError if it cannot be read.
  std::string read(const std::string& cell_id) const;
  bool has(const std::string& cell_id) const { return cells_.find(hash128(cell_id)).has_value(); }
  std::size_t size() const { return cells_.size(); }  // cells
  // Hashes of their ids, in the order in which they first came.
  const KeyIndex& keys() const { return cells_; }
  // The id of one of them; throws as read().
  std::string id(std::size_t place) const;

 private:
  void note(const std::string& cell_id, std::int64_t offset);

  std::string path_;
  AppendLog log_;
  std::uint64_t kind_;
  KeyIndex cells_;                    // hashes of ids
  std::deque<std::int64_t> offsets_;  // offsets of their records
};

}  // namespace kvbench
