// The journals of several output folders, taken together as one: shards of a plan, merged.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "results/cell_records.hpp"
#include "results/journal_scan.hpp"
#include "results/plan_index.hpp"
#include "sweep/plan_document.hpp"
#include "system/append_log.hpp"

namespace kvbench {

class MergedJournals : public CellRecords {
 public:
  // Reads `folder`/journal.jsonl of each folder; the plan is made again from their headers, the
  // dumps are not needed. A folder without a journal is listed under absent(). Throws InputError
  // if none has one, if journals are of different plans, if two of them disagree on the values
  // of a cell, or if the plan needs more than `memory_limit` bytes.
  MergedJournals(const std::vector<std::string>& folders,
                 const std::vector<AlgorithmDescription>& algorithms,
                 double memory_limit = std::numeric_limits<double>::infinity());
  ~MergedJournals() override;
  MergedJournals(const MergedJournals&) = delete;
  MergedJournals& operator=(const MergedJournals&) = delete;

  const Plan& plan() const { return plan_; }
  const std::vector<std::string>& absent() const { return absent_; }
  // The folders that have a journal, as given.
  std::vector<std::string> folders() const;
  // Shards of the plan, from the --shard of the journals' runs; 0 if they had none, or not the
  // same.
  int shards() const { return shards_; }
  // Index into folders() of the journal that holds a cell whose state is not kMissing.
  std::size_t folder_of(std::size_t cell) const { return cells_[cell].journal; }
  // In which of version, git, compiler, flags and isa (instruction set) the journals' runs differ:
  // values may then differ, too, if only in their last bits.
  const std::vector<std::string>& differing_builds() const { return differing_builds_; }

  // Lines that are not records of the cells whose ids they have.
  std::int64_t damaged_lines() const { return damaged_; }

  CellState state(std::size_t cell) const override { return cells_[cell].state; }
  std::size_t count(CellState state) const override;
  StoredRecord stored(std::size_t cell) const override;
  CellState layer_state(std::size_t layer) const override { return layers_[layer].state; }
  std::size_t count_layers(CellState state) const override;
  StoredRecord stored_layer(std::size_t layer) const override;
  const std::vector<Json>& provenance() const override { return provenance_; }
  bool is_anonymous() const override;  // if one of the journals is

 private:
  struct Source {
    std::string folder;
    std::string path;  // path of the journal
    AppendLog log;
    Json header;
  };
  struct Cell {
    std::uint32_t journal = 0;
    CellState state = CellState::kMissing;
    JournalLine line;
  };
  struct Found;

  void open(const std::vector<std::string>& folders,
            const std::vector<AlgorithmDescription>& algorithms);
  void add(const std::string& folder, const std::vector<AlgorithmDescription>& algorithms);
  void take_plan(const Source& source, const std::vector<AlgorithmDescription>& algorithms);
  void refuse_other_plan(const Source& source) const;
  void take(std::uint32_t journal, const std::vector<Found>& found);
  // `name`: of the record, for messages.
  void take_one(Cell& held, const Cell& found, const std::function<std::string()>& name);
  void compare_builds();

  Plan plan_;
  std::vector<Source> sources_;
  std::vector<Cell> cells_;
  std::vector<Cell> layers_;  // the plan's layer records
  std::vector<std::string> absent_;
  std::vector<Json> provenance_;
  std::vector<std::string> differing_builds_;
  int shards_ = 0;
  double memory_limit_;
  std::int64_t damaged_ = 0;
  PlanIndex index_;  // while journals are read
};

}  // namespace kvbench
