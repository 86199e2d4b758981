// Computes the cells of a plan that a journal does not hold yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cellfiles/kept_store.hpp"
#include "cellfiles/rows_file.hpp"
#include "dump/dump.hpp"
#include "kernels/kernels.hpp"
#include "results/journal.hpp"
#include "results/results_file.hpp"
#include "run/run_observer.hpp"
#include "run/shard_selection.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct Execution {
  const Plan& plan;
  const std::vector<Dump>& dumps;  // as plan.dumps
  Journal& journal;
  const Kernels& kernels;
  // Throws if the device that the kernels run on failed for good; asked if a cell failed.
  std::function<void()> check_device;
  RowsFile* rows;     // null: per-row values are not kept
  KeptStore* caches;  // null: what cells keep is not written
  const ShardSelection& selection;
  std::function<std::string(const PlannedCell&)> repro;
  bool retry_failed = false;
  // The command that repeats a record of a whole layer; not given: no text.
  std::function<std::string(const PlannedLayerRecord&)> layer_repro = nullptr;
  // Records of whole layers are gathered in as many passes as this asks for.
  double memory_limit = std::numeric_limits<double>::infinity();
};

// Per cell of the plan, whether it is to be computed: those of the selection alone. A record of a
// whole layer that is missing needs all of its cells.
std::vector<bool> pending_cells(const Execution& execution);

// Per record of a whole layer of the plan, whether it is to be computed, from its cells.
std::vector<bool> pending_layers(const Execution& execution);

// Records what the plan skips of the selection, then runs the pending cells group by group, head by
// head; records of whole layers follow the last head. A stream that cannot be read fails its cells;
// the others go on. Ends early once `stop` is set. Throws BugError when a cell throws what is not
// its own, IoError when the journal or the rows file cannot be written, and what check_device
// throws. Returns timings of the groups that were worked on.
std::vector<std::optional<GroupTiming>> execute(const Execution& execution, RunObserver& observer,
                                                std::atomic<bool>& stop);

}  // namespace kvbench
