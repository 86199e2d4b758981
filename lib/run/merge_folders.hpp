// Output folders of shards joined into the results of one run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "results/results_file.hpp"

namespace kvbench {

struct MergeRequest {
  std::vector<std::string> folders;  // folders of runs with a shard each, or globs
  std::string out;                   // the results file
  const std::vector<AlgorithmDescription>* algorithms = &all_algorithms();
  std::uint64_t memory_limit = 0;  // bytes; 0: what the process may use
  bool no_lock = false;            // go on where the file's folder cannot be locked
};

// Reports of a merge to its caller; the merge itself prints nothing.
class MergeObserver {
 public:
  virtual ~MergeObserver() = default;

  // A sentence about what was found, and the items of its list.
  virtual void notice(const std::string& text, const std::vector<std::string>& items) = 0;
  // A sentence about something that was lost, without which the merge goes on.
  virtual void warning(const std::string& text) = 0;
};

struct MergeOutcome {
  struct MissingShard {
    int number = 0;                  // from 1; 0: unknown
    std::vector<std::string> items;  // layers, with the number of cells and the first of them
  };

  ResultsOutcome counts;
  std::size_t cells = 0;            // cells of the plan
  std::size_t layer_records = 0;    // records of the plan
  std::size_t lost = 0;             // finished cells without their per-row values, or cache files
  std::size_t folders = 0;          // that have a journal
  std::vector<std::string> absent;  // folders without one
  int shards = 0;                   // 0: unknown
  std::vector<MissingShard> missing;

  bool complete() const { return counts.complete() && lost == 0; }
};

// Writes what one run of the whole sweep would have written, from journals and per-row values; the
// dumps are not needed. results.rows.h5 and caches/ go next to the results file. Merges into one
// file take turns. Throws InputError as MergedJournals does, and where the file is of another sweep
// or is not a results file, or a run works in its folder; IoError; Stopped.
MergeOutcome merge_folders(const MergeRequest& request, MergeObserver& observer);

}  // namespace kvbench
