// The `dumps` of a sweep file: paths and globs into files that exist.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"

namespace kvbench {

// Absolute paths in the order listed, those of one glob in byte order. Relative ones start at
// `folder`. A path or glob without a file and a file named twice are errors.
std::vector<std::string> read_dump_paths(const nlohmann::json& given, const std::string& folder,
                                         const std::string& pointer, ErrorList& errors);

}  // namespace kvbench
