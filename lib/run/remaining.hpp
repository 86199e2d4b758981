// The part of a selection that a journal does not have yet, and the part that failed.
#pragma once

#include <cstddef>

#include "results/cell_records.hpp"
#include "run/shard_selection.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Numbers of cells, and of records of whole layers.
struct Remaining {
  std::size_t missing = 0;
  std::size_t failed = 0;
  std::size_t missing_layers = 0;
  std::size_t failed_layers = 0;

  bool complete() const { return missing + missing_layers == 0; }
};

Remaining count_remaining(const Plan& plan, const ShardSelection& selection,
                          const CellRecords& records);

}  // namespace kvbench
