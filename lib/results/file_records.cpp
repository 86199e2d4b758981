#include "results/file_records.hpp"

#include <utility>

#include "results/cell_field.hpp"
#include "results/distinct_records.hpp"
#include "results/read_results.hpp"

namespace kvbench {
FileRecords::FileRecords(std::string path, Kind kind, bool with_config)
    : path_(std::move(path)), kind_(kind) {
  DistinctRecords cells(path_, "cells");
  DistinctRecords layers(path_, "layers");
  rest_ = read_results(path_, {.cell = [&](Json&& cell) { cells.add(cell); },
                               .layer = [&](Json&& layer) { layers.add(layer); },
                               .config = with_config});
  rest_.erase("cells");
  rest_.erase("layers");
}

void FileRecords::visit(const std::function<void(const Json& record)>& each) const {
  std::size_t index = 0;
  const auto visit_one = [&](Json&& record) {
    require_cell(record, index++, path_, kind_ == Kind::kCells ? "cells" : "layers");
    each(record);
  };
  if (kind_ == Kind::kCells) {
    read_results(path_, {.cell = visit_one});
  } else {
    read_results(path_, {.layer = visit_one});
  }
}

}  // namespace kvbench
