// finished.jsonl: that results.json is what the journal gives, so that a run with nothing to do
// reads no record.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "results/cell_records.hpp"
#include "results/summary.hpp"
#include "system/hash.hpp"

namespace kvbench {

inline constexpr const char* kFinishedFile = "finished.jsonl";

// The states of a plan's records, and the means that the run's table shows.
struct FinishedRecords {
  std::vector<CellState> cells;
  std::vector<CellState> layers;
  ComparedSettings compared;
};

class FinishedRun {
 public:
  // `header`: that of the folder's journal, without provenance. `has_rows`: the run keeps per-row
  // values.
  FinishedRun(std::string folder, const Json& header, bool has_rows);

  // Notes them with hashes of the journal, results.json and the per-row values, and of program,
  // working folder and header. Notes nothing if the disk refuses it.
  void note(const FinishedRecords& records) const;
  // The records if all of that is as it was noted.
  std::optional<FinishedRecords> find() const;

 private:
  std::string last_line(Hash128& hash) const;

  std::string folder_;
  std::string of_;  // hash of program, working folder and header
  bool has_rows_;
};

}  // namespace kvbench
