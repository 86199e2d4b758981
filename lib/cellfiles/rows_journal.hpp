// Per-row values of cells, until results.rows.h5 is made of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cellfiles/cell_log.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// The per-row values of one cell.
struct CellRows {
  int heads_per_kv = 1;                      // query heads
  std::vector<Index> rows;                   // [R]
  std::vector<std::vector<double>> columns;  // each [G][R] row-major
};

class RowsJournal {
 public:
  // `columns`: the names of those that each cell has; what was written with others is cut off.
  // Throws IoError.
  RowsJournal(const std::string& path, const std::vector<std::string>& columns,
              AppendLog::Access access);

  // Both functions are those of CellLog.
  void append(const std::string& cell_id, const CellRows& cell);
  CellRows read(const std::string& cell_id) const;
  bool has(const std::string& cell_id) const { return log_.has(cell_id); }
  std::size_t size() const { return log_.size(); }
  const KeyIndex& keys() const { return log_.keys(); }
  std::string id(std::size_t place) const { return log_.id(place); }

 private:
  CellLog log_;
  std::size_t columns_;
};

}  // namespace kvbench
