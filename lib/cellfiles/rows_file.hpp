// results.rows.h5: per-row values of cells, one group per cell id.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cellfiles/rows_journal.hpp"
#include "system/key_index.hpp"

namespace kvbench {

// Group /<cell id>: `rows` i64[R] and, as f64[G, R], a dataset for each column. There may be
// millions of cells: HDF5 1.8 and later read the file. `columns` are their names, those of
// CellRows::columns in their order; a cell that lacks one does not count as there. The group's
// attribute `checksum` is over its id and numbers.
//
// A child process reads all of a file but the values first (hdf5/first_reading.hpp).
//
// While a run adds cells, PATH.journal holds those, and PATH stays as it was: HDF5 does not survive
// a kill in the middle of a write. finish() writes PATH from both.
class RowsFile {
 public:
  // Nothing needs to be there yet. A file that cannot be read, or of which a cell is damaged, is
  // renamed to PATH.damaged, as was_damaged() says: cells that has() does not know must then be
  // computed again. Throws IoError if the folder cannot be written or another program has the file
  // open for writing, and InputError if it is no regular file.
  RowsFile(std::string path, std::vector<std::string> columns);

  // Opens the journal, which write() does by itself, and returns its path.
  const std::string& start();
  // Adds (or replaces) one cell: its values survive a kill when this returns.
  void write(const std::string& cell_id, const CellRows& rows);
  bool has(const std::string& cell_id) const;
  bool was_damaged() const { return was_damaged_; }

  // Writes PATH with all cells, `cells` of them with these ids first and in this order, so that
  // equal cells make equal bytes; cells that are not there are left out. `complete`: no cell is
  // missing, and the journal goes. Does nothing if nothing was written.
  void finish(std::size_t cells, const std::function<std::string(std::size_t)>& id_of,
              bool complete);

 private:
  std::string path_;
  std::vector<std::string> columns_;
  std::string journal_path_;
  std::optional<RowsJournal> journal_;
  KeyIndex in_file_;  // hashes of cell ids
  bool was_damaged_ = false;
};

// The same file, with the journal next to it of a run that may not have ended; for reading.
class RowsReader {
 public:
  // Throws InputError if neither is there, or the file cannot be read or a cell of it is damaged,
  // as read() does; IoError if another program has it open for writing.
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

// Writes a whole rows file of the cells that `fill` adds, each once, in this order, and puts it
// into place at `path`. Throws IoError, and what `fill` throws; nothing half-written remains.
using AddCell = std::function<void(const std::string& cell_id, const CellRows& rows)>;
void write_rows_file(const std::string& path, const std::vector<std::string>& columns,
                     const std::function<void(const AddCell& add)>& fill);

// Seconds that a run takes to write one cell of this size to journal and file, without the file
// system's time: cells of zeros are written in memory for about `budget` seconds.
double seconds_per_cell_of_rows(const std::vector<std::string>& columns, int heads_per_kv,
                                std::size_t rows, double budget);

}  // namespace kvbench
