// Files that a sweep names: paths and globs.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"

namespace kvbench {

// The file of this path, if there is one, else those that it matches as a glob, in byte order; none
// are an error at `place`. Relative ones start at `folder`.
std::vector<std::string> files_named(const std::string& written, const std::string& folder,
                                     const std::string& place, ErrorList& errors);

// The `dumps` of a sweep: absolute paths in the order listed, those of one glob in byte order.
// Relative ones start at `folder`. A path or glob without a file and a file named twice are errors.
std::vector<std::string> read_dump_paths(const nlohmann::json& given, const std::string& folder,
                                         const std::string& pointer, ErrorList& errors);

// Folders as they are, and those that globs match, in byte order; a glob without one stays.
std::vector<std::string> folders_named(const std::vector<std::string>& written);

// The dumps of a command's option --dump: paths as they are, and the files of globs. A glob without
// a file is an InputError.
std::vector<std::string> dumps_of_option(const std::vector<std::string>& written);

}  // namespace kvbench
