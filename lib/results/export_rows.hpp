// Common parts of exports: records one at a time, and each as a flat row.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

// Calls `each` with every record to export, in order; the same ones each time it is called.
using VisitRecords = std::function<void(const std::function<void(const Json& record)>& each)>;

// Column and value, in the order of the columns; what a record has as an object is spread over
// columns with dots. Values are strings, numbers, booleans, null or, of a key's lists, arrays.
using FlatRow = std::vector<std::pair<std::string, Json>>;

// id, status, reason, label, storage (as the label has it, or float), the key, params.*,
// storage.keys.* and storage.values.* (if `with_codecs`), derived.*, errors.*, trivial.*, mass.*,
// evidence.*, clusters.final, memory.*, traffic.*, counters.*, timing.seconds;
// memory.compression_ratio is 1 - memory.fraction, as kvpress counts.
FlatRow flat_row(const Json& record, bool with_codecs);

// Whether the record has a storage.
bool is_stored(const Json& record);

}  // namespace kvbench
