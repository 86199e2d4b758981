// results.json: assembled from the journal, in plan order, and renamed into place.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "results/cell_records.hpp"
#include "results/summary.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Time of a group's shared work in this run, summed over its KV heads; volatile.
struct GroupTiming {
  double read_seconds = 0.0;
  double reference_seconds = 0.0;
  double metrics_seconds = 0.0;
};

struct ResultsOutcome {
  // Counts of the records of whole layers.
  struct Layers {
    std::size_t ok = 0;
    std::size_t failed = 0;
    std::size_t skipped = 0;
    std::size_t missing = 0;
  };

  std::size_t ok = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
  std::size_t missing = 0;
  Layers layers;
  ComparedSettings settings;

  bool complete() const { return missing == 0 && layers.missing == 0; }
};

// The counts alone.
ResultsOutcome count_results(const CellRecords& records);

// Writes `path` from what `records` hold of `plan`, one record and few entries of the summary in
// memory at a time (estimate_results_bytes() of lib/run says what it takes). `timing` per group of
// the plan; if a group has none it is the sum of those of the results files
// `also_timed_by`, else that of the file that is replaced, if they are of the same plan; else its
// numbers are null. Throws
// IoError; nothing half-written remains.
ResultsOutcome write_results(const std::string& path, const Plan& plan, const CellRecords& records,
                             const std::vector<std::optional<GroupTiming>>& timing,
                             const std::vector<std::string>& also_timed_by = {});

}  // namespace kvbench
