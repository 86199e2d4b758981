// A few cells of one KV head, computed and timed as a run would compute them.
#pragma once

#include <cstddef>
#include <vector>

#include "dump/dump.hpp"
#include "kernels/kernels.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// The cells of one KV head of one group that are to be computed.
struct HeadCells {
  std::size_t group = 0;  // index into the plan's
  int kv_head = 0;
  std::vector<std::size_t> cells;
  double multiply_adds = 0.0;
};

struct TimedSample {
  double seconds = 0.0;             // that the whole head will take
  std::size_t cells = 0;            // that were computed
  double projection_seconds = 0.0;  // of the seconds, on its part of the layer's records
  double rows_seconds = 0.0;        // of the seconds, on writing the cells' per-row values
  double scale = 1.0;               // pairs of a visited row and a token, all over those replayed
};

// Reads the head's stream and replays cells spread evenly over its list, spending about `budget`
// seconds. Of a long sequence a part of the rows is replayed (sample_rows.hpp) and scaled up. A
// stream that cannot be read costs nothing, as in a run.
TimedSample time_sample(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                        const HeadCells& head, double budget);

}  // namespace kvbench
