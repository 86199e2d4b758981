// The memory that a group will need, estimated from its shape before anything is read.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

inline constexpr std::size_t kAllLayerRecords = std::numeric_limits<std::size_t>::max();

// Bytes of a KV head's tensors as they are read.
double stream_bytes(const StreamShape& shape);

// Whether the streams of a scope, so many of this shape, stay in memory while it is decided: those
// that take at most 256 MiB do.
bool streams_stay(const StreamShape& shape, Index streams);

// Bytes that are held at one time at most while the group runs: one KV head of it is in memory at a
// time, its cells on `threads` threads, and what is gathered for `layer_records` of its records of
// the whole layer. 0 if all its cells are skipped.
double estimate_memory_bytes(const Plan& plan, const WorkGroup& group, int threads,
                             std::size_t layer_records = kAllLayerRecords);

// How many records of whole layers can be gathered in one pass over the group's KV heads within
// `limit` bytes; at least 1.
std::size_t layers_at_once(const Plan& plan, const WorkGroup& group, int threads, double limit);

// Bytes that are held at most while results.json is written, which needs neither dumps nor
// kernels: the program, the plan, and what the summary collects of each setting.
double estimate_results_bytes(const Plan& plan);

// The larger of the two, over the selected groups (`groups`: one flag per group).
double estimate_peak_bytes(const Plan& plan, const std::vector<bool>& groups, int threads);

// "1.5 GiB"
std::string bytes_text(double bytes);

// Throws InputError where writing results.json needs more than `limit` bytes, or a selected group
// does: every one of them is named, with how much more it needs, and the remedy.
void check_memory_limit(const Plan& plan, const std::vector<bool>& groups, int threads,
                        double limit);

// The first of these alone: for commands that join results of runs.
void check_results_limit(const Plan& plan, double limit);

}  // namespace kvbench
