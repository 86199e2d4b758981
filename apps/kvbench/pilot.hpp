// How long a plan will take on this machine: a few of its cells are computed and timed.
#pragma once

#include <cstddef>
#include <vector>

#include "dump/dump.hpp"
#include "kernels/kernels.hpp"
#include "share.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

struct CostEstimate {
  std::vector<double> seconds;   // per group of the plan, with all threads; 0 outside the share
  double start_seconds = 0.0;    // dumps opened and checked; filled in by the caller
  double summary_seconds = 0.0;  // intervals of the summary
  std::size_t cells = 0;         // that were timed

  double total() const;
};

// KV heads whose cells are the same points on streams of the same shape cost the same: of each such
// kind one head is read, and cells spread evenly over its list are replayed. Long sequences are cut
// short after the prompt and scaled up; kinds that there is no time for are taken to cost as much
// per multiply-add as the others. Spends about `seconds`, whatever the plan's size. Streams that
// cannot be read cost nothing, as in a run.
CostEstimate time_a_sample(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                           const Share& share, double seconds);

}  // namespace kvbench
