// The memory that a group will need, estimated from its shape before anything is read.
#pragma once

#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// Bytes that are held at one time at most while the group runs: one KV head of it is in memory at a
// time, its cells on `threads` threads. 0 if all its cells are skipped.
double estimate_memory_bytes(const Plan& plan, const PlannedGroup& group, int threads);

// Memory that this process may use: the machine's, or its control group's limit if smaller.

// "1.5 GiB"
std::string bytes_text(double bytes);

// Throws InputError naming every selected group (`groups`: one flag per group) that needs more than
// `limit` bytes, how much more, and the remedy.
void check_memory_limit(const Plan& plan, const std::vector<bool>& groups, int threads,
                        double limit);

}  // namespace kvbench
