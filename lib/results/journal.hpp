// journal.jsonl: what makes a run resumable. A header line, then one line per finished cell.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "results/journal_scan.hpp"
#include "results/json.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

enum class CellState : std::uint8_t { kMissing, kOk, kFailed, kSkipped };

// The journal of one output folder, open for one run. A cell is known by its id alone, so a journal
// that an earlier sweep began still serves every cell that both describe; its header is brought up
// to date then. Lines are never taken away, only a torn last one is cut off.
//
// A line is written at once in one write(2) and reaches the disk at most one second later.
class Journal {
 public:
  struct Options {
    bool fresh = false;  // begin anew, whatever is there
  };

  // Creates `folder` where needed and locks it against other processes for the object's lifetime.
  // `run`: provenance of this run. Throws InputError where the folder cannot be written, another
  // process is at work in it, or its journal is not one.
  Journal(const std::string& folder, const Plan& plan, Json run, Options options);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  CellState state(std::size_t cell) const { return cells_[cell].state; }
  std::size_t count(CellState state) const;

  // Appends the record of a cell of the plan. Not for concurrent use. Throws OutputError, after
  // cutting off what a failing disk left half-written.
  void append(std::size_t cell, const Json& record);

  // The last record of a cell whose state is not kMissing, as appended.
  Json read(std::size_t cell) const;

  // Flushes to the disk; throws OutputError.
  void sync();

  // Of every run that added to the journal, this one included once it has.
  const std::vector<Json>& provenance() const { return provenance_; }
  // Cells found when the journal was opened, and whether another plan had begun it.
  std::size_t resumed() const { return resumed_; }
  bool of_another_plan() const { return of_another_plan_; }
  std::int64_t damaged_lines() const { return damaged_; }

 private:
  struct Cell {
    JournalLine line;
    CellState state = CellState::kMissing;
  };

  void lock(const std::string& folder);
  void open_or_create(const Plan& plan, Options options);
  void create(const Json& header, std::int64_t copy_from, std::int64_t copy_to);
  void flush_late();

  std::string path_;
  int lock_ = -1;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
  std::vector<Cell> cells_;  // per cell of the plan
  std::vector<Json> provenance_;
  Json run_;
  bool run_is_recorded_ = false;
  std::size_t resumed_ = 0;
  bool of_another_plan_ = false;
  std::int64_t damaged_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool dirty_ = false;
  bool closing_ = false;
  std::string flush_fault_;
  std::thread flusher_;
};

}  // namespace kvbench
