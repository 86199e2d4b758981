// results.rows.h5: per-row error values of cells, one group per cell id.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "metrics/errors.hpp"

namespace kvbench {

// Group /<cell id>: `rows` i64[R] and, as f64[G, R], relative_l2, epsilon_spectral,
// epsilon_frobenius, numerator_error, normalizer_error, kept_mass.
class RowsFile {
 public:
  // Opens for appending, or creates; throws InputError where that is impossible. A file that cannot
  // be read (its run was killed while it was being written) is renamed to PATH.damaged and a new
  // one started: cells that has() does not know must then be computed again.
  explicit RowsFile(const std::string& path);
  ~RowsFile();
  RowsFile(RowsFile&&) noexcept;
  RowsFile& operator=(RowsFile&&) noexcept;

  // Writes (or replaces) one cell and flushes it to the file.
  void write(const std::string& cell_id, int group, const RowErrors& errors);
  bool has(const std::string& cell_id) const;
  bool started_anew() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbench
