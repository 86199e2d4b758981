// results.rows.h5: per-row error values of cells, one group per cell id.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dump/rows_journal.hpp"
#include "metrics/errors.hpp"

namespace kvbench {

// Group /<cell id>: `rows` i64[R] and, as f64[G, R], relative_l2, epsilon_spectral,
// epsilon_frobenius, numerator_error, normalizer_error, kept_mass.
//
// While a run adds cells, PATH.journal holds them, too. It is what survives a kill: if it is
// found, PATH is put together from it again. settle() ends that state.
class RowsFile {
 public:
  // Opens for appending, or creates; throws IoError if that is impossible. A file that cannot
  // be read and has no journal is renamed to PATH.damaged and a new one started, as started_anew()
  // says: cells that has() does not know must then be computed again.
  explicit RowsFile(const std::string& path);
  ~RowsFile();
  RowsFile(RowsFile&&) noexcept;
  RowsFile& operator=(RowsFile&&) noexcept;

  // Starts the journal with what the file holds; write() does so by itself. Its path.
  const std::string& begin();
  // Writes (or replaces) one cell: it is in the file, for the system at least, when this returns.
  void write(const std::string& cell_id, int group, const RowErrors& errors);
  bool has(const std::string& cell_id) const;
  bool started_anew() const;

  // What was written is to stay as it is: the file is written once more, these cells first and in
  // this order, so that equal cells make equal bytes, and put into place; the journal goes.
  // Nothing is done if nothing was written. Cells that are not there are left out.
  void settle(const std::vector<std::string>& cell_ids);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The same file, or the journal beside it, of a run that may not have ended; for reading.
class RowsReader {
 public:
  // Throws InputError if there is no such file or it cannot be read, as read() does.
  explicit RowsReader(const std::string& path);
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
void write_rows_file(const std::string& path, const std::vector<std::string>& cell_ids,
                     const std::function<CellRows(const std::string&)>& read);

}  // namespace kvbench
