// Reading results.json.
#pragma once

#include <functional>
#include <string>

#include "json/json.hpp"

namespace kvbench {

// Reads a results file whole, or the results.json of a folder. Throws InputError if it is missing,
// not a results file, or of another major schema version.
Json read_results(const std::string& path);

// Wanted parts of a file whose size is that of a sweep.
struct ResultsParts {
  // Called with each cell, record of a whole layer, group (a stream with the times that it took),
  // or entry of the summary as it is read, before the end of the file is. Where a function is
  // empty, these are left out.
  std::function<void(Json&&)> cell = {};
  std::function<void(Json&&)> layer = {};
  std::function<void(Json&&)> group = {};
  std::function<void(Json&&)> summary = {};
  bool config = false;  // the sweep
};

// The same without what is not wanted. The returned object has no records, groups or summary.
Json read_results(const std::string& path, const ResultsParts& parts);

}  // namespace kvbench
