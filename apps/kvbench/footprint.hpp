// What a group will need, estimated from its shape before anything is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

struct Footprint {
  double bytes = 0.0;  // at most held at one time while the group runs
  // Multiply-adds: exact attention and logits of the rows, and per cell one pass over all visible
  // tokens of every scored row (sketches are smaller: an upper bound).
  double multiply_adds = 0.0;
};

// One KV head of a group is in memory at a time, its cells on `threads` threads.
Footprint footprint(const Plan& plan, const PlannedGroup& group, int threads);

// "1.5 GiB"
std::string bytes_text(double bytes);

// Throws InputError naming every group of the share (one flag per group) that needs more than
// `limit` bytes, how much more, and the remedy.
void refuse_what_cannot_fit(const Plan& plan, const std::vector<bool>& share, int threads,
                            double limit);

}  // namespace kvbench
