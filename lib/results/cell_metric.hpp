// The numbers of a cell that a bound can speak of, by their paths from the cell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

// Every such path ("errors.relative_l2.mean"), `derived.NAME` left out; and those of records of
// whole layers (results/layer_record.hpp).
const std::vector<std::string>& metric_paths();

// Error of `path`, with a remedy; nothing if it is one of metric_paths() or `derived.NAME`.
std::optional<std::string> metric_error(const std::string& path);

// Those of metric_paths() that the trivial answers have too, and their places in a cell.
const std::vector<std::string>& trivial_metric_paths();
std::vector<Json::json_pointer> trivial_places(const std::string& path);

// Whether less of what a path without error names is better; of other numbers neither more nor less
// is.
bool less_is_better(const std::string& path);

// The place in a cell of a path without error.
Json::json_pointer metric_place(const std::string& path);

// Error of `path` as that of a number of cells, not of whole layers; nothing if it is one.
std::optional<std::string> cell_metric_error(const std::string& path);

}  // namespace kvbench
