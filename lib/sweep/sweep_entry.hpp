// One element of a sweep's `algorithms`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"
#include "sweep/config.hpp"
#include "sweep/storage_axis.hpp"

namespace kvbench {

struct ReadEntry {
  bool good = false;  // no error; else only `entry.pointer` and `entry.where` are of use
  SweepEntry entry;
  nlohmann::json resolved;  // axes as lists, defaults filled in
};

// Reads one entry against the tables of `algorithms`. `storages`: those of an entry without its
// own. `folder`: where relative paths of files start; none: files are named as they were found
// once. `points_left`: how many points the sweep may still have; an entry with more is an error and
// is not expanded. All its errors go to `errors`.
ReadEntry read_entry(const nlohmann::json& given,
                     const std::vector<AlgorithmDescription>& algorithms, const Storages& storages,
                     const std::string& pointer, const std::optional<std::string>& folder,
                     double points_left, ErrorList& errors);

}  // namespace kvbench
