// The cache files that a run writes (output.caches): which cell's rows go where.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cellfiles/kept_store.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Why what the cell keeps cannot be written as rows of a cache file; none if it can, if it is run
// at all.
std::optional<std::string> no_cache_file(const PlannedCell& cell);
inline bool has_cache_file(const PlannedCell& cell) { return !no_cache_file(cell); }

// One file per setting and seed, all KV heads of it: <label>-<parameters>-<seed>.h5, the parameters
// that are not at their defaults; with the dump's name or the number of tokens where a sweep has
// several. Names that are long, or that settings share, end in a hash of the setting. Cells without
// a cache file are left out, and files without cells.
std::vector<CacheFile> cache_files(const Plan& plan);

}  // namespace kvbench
