// A few cells of one KV head, computed and timed as a run would compute them.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "dump/dump.hpp"
#include "kernels/kernels.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// A KV head of a group, and the work that its cells are.
struct HeadCells : PlannedHead {
  std::size_t to_run = 0;  // number of its cells that are not skipped
  double multiply_adds = 0.0;
};

// The first tokens of a KV head of a group.
using ReadStream =
    std::function<std::unique_ptr<StreamData>(const WorkGroup& group, int kv_head, Index tokens)>;

struct TimedSample {
  double seconds = 0.0;             // estimated time of the whole head
  std::size_t cells = 0;            // cells that were computed
  std::size_t unknown_cells = 0;    // cells of methods that were not timed: 0 seconds
  double projection_seconds = 0.0;  // part of the seconds, on its part of the layer's records
  double rows_seconds = 0.0;        // part of the seconds, on writing the cells' per-row values
  Index tokens = 0;                 // tokens of the longest replay
};

// Replays a few cells of each of the head's methods on ever longer parts of its stream
// (short_replay.hpp), as long as the next one by its predicted time ends within `budget` seconds;
// the whole head's time follows from them. The two shortest parts are replayed whatever the budget
// is. Parts that take more than `memory_limit` bytes are not, except the shortest. A stream that
// cannot be read costs nothing, as in a run. `read`: what is replayed in place of the dumps, which
// then may be missing.
TimedSample time_sample(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                        const HeadCells& head, double budget,
                        double memory_limit = std::numeric_limits<double>::infinity(),
                        const ReadStream& read = nullptr);

}  // namespace kvbench
