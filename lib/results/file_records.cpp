#include "results/file_records.hpp"

#include <utility>

#include "results/cell_field.hpp"
#include "results/distinct_records.hpp"
#include "results/results_file.hpp"

namespace kvbench {
FileRecords::FileRecords(std::string path, Kind kind) : path_(std::move(path)), kind_(kind) {
  DistinctRecords cells(path_, "cells");
  DistinctRecords layers(path_, "layers");
  rest_ = read_results(
      path_, [&](Json&& cell) { cells.add(cell); }, [&](Json&& layer) { layers.add(layer); });
  rest_.erase("cells");
  rest_.erase("layers");
}

void FileRecords::visit(const std::function<void(const Json& record)>& each) const {
  std::size_t index = 0;
  const auto visit_one = [&](Json&& record) {
    require_cell(record, index++, path_, kind_ == Kind::kCells ? "cells" : "layers");
    each(record);
  };
  const auto leave_out = [](Json&&) {};
  if (kind_ == Kind::kCells) {
    read_results(path_, visit_one, leave_out);
  } else {
    read_results(path_, leave_out, visit_one);
  }
}

}  // namespace kvbench
