// journal.jsonl: what makes a run resumable. A header line, then one line per finished cell and per
// finished record of a whole layer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "json/json.hpp"
#include "results/cell_records.hpp"
#include "results/finished_run.hpp"
#include "results/journal_scan.hpp"
#include "sweep/plan.hpp"
#include "system/append_log.hpp"
#include "system/file_lock.hpp"
#include "system/key_index.hpp"

namespace kvbench {

// The journal of one output folder, open for one run. A folder belongs to one sweep, which may
// grow: a run is refused if the folder has finished cells that its plan lacks, unless `add` is set.
// A cell is known by its id alone, so the journal serves every cell that both plans describe; its
// header is brought up to date then. Lines are never taken away, only a torn last one is cut off.
//
// A line is written at once in one write(2) and reaches the disk at most one second later.
class Journal : public CellRecords {
 public:
  struct Options {
    bool fresh = false;      // start over, whatever is there
    bool add = false;        // also into the folder of another sweep
    std::string shard;       // "2/3": the part of the plan that this run is to do; empty: all of it
    bool anonymous = false;  // files made from it name no host and no folder
    bool no_lock = false;    // go on if the file system cannot lock files
  };

  // Creates `folder` if needed and locks it against other processes for the object's lifetime.
  // `run`: provenance of this run. Throws IoError if the folder cannot be written, InputError
  // if another process is at work in it, its file system cannot lock files (unless no_lock is
  // set: the caller then sees to it that no other run is), its journal is not one, a dump that
  // it speaks of has changed, or its journal or results.json have finished cells of another sweep;
  // nothing is changed then. A line that is not a record of the cell whose id it has is damaged.
  // `plan` outlives the object: the lines of a finished run are read when one is first asked for.
  Journal(const std::string& folder, const Plan& plan, Json run, const Options& options);
  ~Journal() override;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  CellState state(std::size_t cell) const override { return cells_[cell].state; }
  std::size_t count(CellState state) const override;

  // Appends the record of a cell of the plan. Not for concurrent use. Throws IoError, after
  // cutting off what a failing disk left half-written.
  void append(std::size_t cell, const Json& record);

  // The last record of a cell whose state is not kMissing, as appended.
  StoredRecord stored(std::size_t cell) const override;

  // The same of the records of whole layers.
  CellState layer_state(std::size_t layer) const override { return layers_[layer].state; }
  std::size_t count_layers(CellState state) const override;
  void append_layer(std::size_t layer, const Json& record);
  StoredRecord stored_layer(std::size_t layer) const override;

  // Flushes to the disk; throws IoError.
  void sync();

  // From now on also syncs the file at `path`, always before the journal, so that no line refers to
  // values that are lost. Throws IoError if it cannot be opened.
  void sync_before(const std::string& path);

  // Provenance of every run that added to the journal, this one included once it has.
  const std::vector<Json>& provenance() const override { return provenance_; }
  bool is_anonymous() const override { return is_anonymous_; }
  // Cells of the plan found when the journal was opened, cells that it holds of other plans, and
  // whether another plan had begun it.
  std::size_t reused_cells() const { return reused_cells_; }
  std::size_t foreign_cells() const { return foreign_.size(); }
  bool plan_changed() const { return plan_changed_; }
  std::int64_t damaged_lines() const { return damaged_; }

  // The means of the results, if the folder has a finished run of the plan with all of its files
  // as they were written, and nothing was appended since.
  const std::optional<ComparedSettings>& finished() const { return finished_; }
  // Notes that results.json is written with these means; not where the journal has other cells, or
  // damaged lines, of which every run tells.
  void note_finished(const ComparedSettings& compared) const;

 private:
  struct Cell {
    JournalLine line;
    CellState state = CellState::kMissing;
  };

  void open_or_create(const std::string& folder, const Plan& plan, const Options& options,
                      Json header);
  void begin_anew(Json header);
  void create(const Json& header, std::int64_t copy_from, std::int64_t copy_to);
  bool take_finished(const Plan& plan);
  JournalScan scan(const Plan& plan, KeyIndex& finished_elsewhere);
  void require_lines() const;
  Cell append_line(const Json& record);
  void sync_files() const;
  void sync_late();

  std::string path_;
  std::unique_ptr<FileLock> lock_;
  std::optional<AppendLog> log_;
  std::vector<AppendLog> companions_;  // synced before the journal
  std::vector<Cell> cells_;            // per cell of the plan
  std::vector<Cell> layers_;           // per layer record of the plan
  std::vector<Json> provenance_;
  Json run_;
  bool is_anonymous_;
  std::optional<FinishedRun> finished_run_;
  std::optional<ComparedSettings> finished_;
  mutable std::function<void()> read_lines_;  // reading of cells; null once done
  bool run_is_recorded_ = false;
  std::size_t reused_cells_ = 0;
  KeyIndex foreign_;  // hashes of ids
  bool plan_changed_ = false;
  std::int64_t damaged_ = 0;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool dirty_ = false;
  bool closing_ = false;
  std::string sync_error_;
  std::thread syncer_;
};

}  // namespace kvbench
