// results.rows.h5: per-row values of cells, one group per cell id.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dump/rows_journal.hpp"

namespace kvbench {

// Group /<cell id>: `rows` i64[R] and, as f64[G, R], a dataset for each column. `columns` are their
// names, those of CellRows::columns in their order; a cell that lacks one does not count as there.
//
// While a run adds cells, PATH.journal holds them, too. It is what survives a kill: where it is
// found, PATH is put together from it again. settle() ends that state.
class RowsFile {
 public:
  // Opens for appending, or creates; throws IoError where that is impossible. A file that cannot
  // be read and has no journal is renamed to PATH.damaged and a new one started, as started_anew()
  // says: cells that has() does not know must then be computed again.
  RowsFile(const std::string& path, std::vector<std::string> columns);
  ~RowsFile();
  RowsFile(RowsFile&&) noexcept;
  RowsFile& operator=(RowsFile&&) noexcept;

  // Starts the journal with what the file holds; write() does so by itself. Its path.
  const std::string& begin();
  // Writes (or replaces) one cell: it is in the file, for the system at least, when this returns.
  void write(const std::string& cell_id, const CellRows& cell);
  bool has(const std::string& cell_id) const;
  bool started_anew() const;

  // What was written is to stay as it is: the file is written once more, these cells first and in
  // this order, so that equal cells make equal bytes, and put into place; the journal goes.
  // Nothing is done where nothing was written. Cells that are not there are left out.
  void settle(const std::vector<std::string>& cell_ids);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same file, or the journal beside it, of a run that may not have ended; for reading.
class RowsReader {
 public:
  // Throws InputError where there is no such file or it cannot be read, as read() does.
  RowsReader(const std::string& path, std::vector<std::string> columns);
  ~RowsReader();
  RowsReader(RowsReader&&) noexcept;
  RowsReader& operator=(RowsReader&&) noexcept;

  bool has(const std::string& cell_id) const;
  CellRows read(const std::string& cell_id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a whole rows file, cell by cell in the order given, and puts it into place at `path`.
// Throws IoError; nothing half-written remains.
void write_rows_file(const std::string& path, const std::vector<std::string>& columns,
                     const std::vector<std::string>& cell_ids,
                     const std::function<CellRows(const std::string&)>& read);

}  // namespace kvbench
