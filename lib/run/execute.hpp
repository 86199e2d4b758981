// Computes the cells of a plan that a journal does not hold yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cellfiles/kept_store.hpp"
#include "cellfiles/rows_file.hpp"
#include "dump/dump.hpp"
#include "results/journal.hpp"
#include "results/results_file.hpp"
#include "run/repro_command.hpp"
#include "run/run_device.hpp"
#include "run/run_observer.hpp"
#include "run/shard_selection.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct Execution {
  const Plan& plan;
  const std::vector<Dump>& dumps;  // as plan.dumps
  Journal& journal;
  const RunDevice& device;  // asked whether it failed if a cell did
  RowsFile* rows;           // null: per-row values are not kept
  KeptStore* caches;        // null: what cells keep is not written
  const ShardSelection& selection;
  // The sweep and the folder that `repro` of a record names.
  SweepSource source = {};
  std::string folder = {};
  bool retry_failed = false;
  // Records of whole layers are gathered in as many passes as this asks for.
  double memory_limit = std::numeric_limits<double>::infinity();

  std::string repro(const PlannedCell& cell) const { return repro_of(source, folder, cell); }
  std::string repro(const PlannedLayerRecord& layer) const {
    return repro_of(source, folder, plan, layer);
  }
};

// Per cell of the plan, whether it is to be computed: those of the selection alone. A record of a
// whole layer that is missing needs all of its cells.
std::vector<bool> pending_cells(const Execution& execution);

// Per record of a whole layer of the plan, whether it is to be computed, from its cells.
std::vector<bool> pending_layers(const Execution& execution);

// Records what the plan skips of the selection, then runs the pending cells group by group, head by
// head; records of whole layers follow the last head. A stream that cannot be read fails its cells;
// the others go on. Ends early once `stop` is set. Throws BugError when a cell throws what is not
// its own, IoError when the journal or the rows file cannot be written, and what the
// device throws. Returns timings of the groups that were worked on.
std::vector<std::optional<GroupTiming>> execute(const Execution& execution, RunObserver& observer,
                                                std::atomic<bool>& stop);

}  // namespace kvbench
