// Per-row values in the order in which cells finished: what results.rows.h5 is put together from,
// and again after a kill, since HDF5 does not survive one in the middle of a write.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/append_log.hpp"
#include "core/matrix_view.hpp"

namespace kvbench {

// The per-row values of one cell.
struct CellRows {
  int heads_per_kv = 1;                      // query heads
  std::vector<Index> rows;                   // [R]
  std::vector<std::vector<double>> columns;  // each [G][R] row-major
};

// A file that only grows, one record per cell, each written at once and carrying its checksum; what
// follows the last whole record is cut off when it is opened for writing, and so is all that was
// written with other columns. Bytes are this machine's: the file exists during an unfinished run
// and nowhere else.
class RowsJournal {
 public:
  // `columns`: the names of those that each cell has. Throws IoError.
  RowsJournal(const std::string& path, const std::vector<std::string>& columns,
              AppendLog::Access access);
  RowsJournal(const RowsJournal&) = delete;
  RowsJournal& operator=(const RowsJournal&) = delete;

  // The last record of a cell wins. Throws IoError.
  void append(const std::string& cell_id, const CellRows& cell);
  // Throws IoError if it cannot be read.
  CellRows read(const std::string& cell_id) const;
  bool has(const std::string& cell_id) const { return offset_of_.count(cell_id) != 0; }
  // Per cell, the offset of its record; ascending ids.
  const std::map<std::string, std::int64_t>& cells() const { return offset_of_; }

 private:
  std::string path_;
  AppendLog log_;
  std::size_t columns_;
  std::uint64_t magic_;  // of records with these columns
  std::map<std::string, std::int64_t> offset_of_;
};

}  // namespace kvbench
