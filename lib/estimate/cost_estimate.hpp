// How long a plan will take on this machine: a few of its cells are computed and timed.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "dump/dump.hpp"
#include "estimate/timed_sample.hpp"
#include "kernels/kernels.hpp"
#include "run/shard_selection.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct CostEstimate {
  std::vector<double> seconds;    // per group of the plan, with all threads; 0 if not selected
  double start_seconds = 0.0;     // dumps opened and checked; filled in by the caller
  std::size_t cells = 0;          // that were timed
  std::size_t unknown_cells = 0;  // to run, whose time is unknown and left out
  double dump_bytes = 0.0;        // on disk, of a dump that is described; filled in by the caller

  double total() const;
};

// KV heads whose cells are the same points on streams of the same shape cost the same: of each such
// kind one head is timed, the kind with most work first; kinds that do not fit the time budget are
// taken to cost as much per multiply-add as the others. Spends about `seconds` and at most
// `memory_limit` bytes, whatever the plan's size. `read`: as time_sample() has it.
CostEstimate estimate_cost(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                           const ShardSelection& selection, double seconds,
                           double memory_limit = std::numeric_limits<double>::infinity(),
                           const ReadStream& read = nullptr);

// The rule above for any way of timing a head and any clock; sets `seconds` and `cells`.
CostEstimate extrapolate_cost(
    const Plan& plan, const ShardSelection& selection, double seconds,
    const std::function<TimedSample(const HeadCells& head, double budget)>& time_head,
    const std::function<double()>& now);

}  // namespace kvbench
