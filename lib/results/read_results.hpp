// Reading results.json, which may be a stranger's.
#pragma once

#include <functional>
#include <string>

#include "json/json.hpp"

namespace kvbench {

// Reads a results file whole. Throws InputError if it is missing, not a results file, of another
// major schema version, or has more than any that kvbench writes.
Json read_results(const std::string& path);

// The same, record by record: each cell goes to `cell`, and each record of a whole layer to
// `layer`, as it is read, before the end of the file is; where a function is empty, such records
// are left out. What is returned has none of them, and no summary.
Json read_results(const std::string& path, const std::function<void(Json&&)>& cell,
                  const std::function<void(Json&&)>& layer);

}  // namespace kvbench
