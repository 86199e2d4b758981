// Whether the summary of a results file follows from its records, for `kvbench verify`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "compare/record_differences.hpp"
#include "json/json.hpp"

namespace kvbench {

struct SummaryDifference {
  Json entry;             // algorithm, label, params, layer, and what else tells it apart
  RecordDifference what;  // "summary.errors.relative_l2.mean.mean"
};

struct SummaryCheck {
  std::size_t entries = 0;        // that the records make, and that the file has besides
  std::size_t equal = 0;          // those of them that the file has so
  std::size_t layer_records = 0;  // whose own numbers are taken as they are
  std::vector<SummaryDifference> differences;
};

// Summarises the records of the file at `path` and holds every number of its `summary` against
// that. Throws InputError as read_results() does, and where a record lacks what a summary is made
// of.
SummaryCheck summary_differences(const std::string& path, const NumberTolerance& tolerance);

}  // namespace kvbench
