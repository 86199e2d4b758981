#include "results/file_records.hpp"

#include <utility>

#include "results/cell_field.hpp"
#include "results/distinct_records.hpp"
#include "results/results_file.hpp"

namespace kvbench {
FileRecords::FileRecords(std::string path, Kind kind) : path_(std::move(path)), kind_(kind) {
  DistinctRecords cells(path_, "cells");
  DistinctRecords layers(path_, "layers");
  rest_ = read_results(path_, [&](Json&& cell) { cells.add(cell); });
  rest_.erase("cells");
  if (const auto found = rest_.find("layers"); found != rest_.end()) {
    for (const Json& layer : *found) layers.add(layer);
    if (kind_ == Kind::kLayers) layers_ = std::move(*found);
    rest_.erase("layers");
  }
}

void FileRecords::visit(const std::function<void(const Json& record)>& each) const {
  if (kind_ == Kind::kLayers) {
    for (const Json& layer : layers_) each(layer);
    return;
  }
  std::size_t index = 0;
  read_results(path_, [&](Json&& cell) {
    require_cell(cell, index++, path_);
    each(cell);
  });
}

}  // namespace kvbench
