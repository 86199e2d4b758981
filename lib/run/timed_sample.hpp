// A few cells of one KV head, computed and timed as a run would compute them.
#pragma once

#include <cstddef>
#include <vector>

#include "dump/dump.hpp"
#include "kernels/kernels.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// A KV head of a group, and the work that its cells are.
struct HeadCells : PlannedHead {
  std::size_t to_run = 0;  // of its cells: those that are not skipped
  double multiply_adds = 0.0;
};

struct TimedSample {
  double seconds = 0.0;             // that the whole head will take
  std::size_t cells = 0;            // that were computed
  double projection_seconds = 0.0;  // of the seconds, on its part of the layer's records
  double rows_seconds = 0.0;        // of the seconds, on writing the cells' per-row values
  double scale = 1.0;               // pairs of a visited row and a token, all over those replayed
};

// Reads the head's stream and replays cells spread evenly over its own, spending about `budget`
// seconds. Of a long sequence a part of the rows is replayed (sample_rows.hpp) and scaled up. A
// stream that cannot be read costs nothing, as in a run.
TimedSample time_sample(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                        const HeadCells& head, double budget);

}  // namespace kvbench
