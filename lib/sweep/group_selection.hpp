// The groups that a sweep selects of its dumps.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "json/pointer.hpp"
#include "sweep/config.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

template <class T>
bool selects(const std::optional<std::vector<T>>& list, const T& element) {
  return !list || std::find(list->begin(), list->end(), element) != list->end();
}

bool selects(const Selection& selection, const std::string& sequence, int layer);

// Number of a layer's `kv_heads` heads that both select.
Index selected_heads(const Selection& select, const Selection& where, int kv_heads);

// Groups in the order of Plan::groups, without members that depend on their cells; empty where the
// sweep does not name its streams (SweepConfig::streams_known). Reports what is selected and does
// not exist, dumps of equal content, and prompts, tokens and rows that are out of range.
std::vector<WorkGroup> select_groups(const SweepConfig& config,
                                     const std::vector<PlannedDump>& dumps, ErrorList& errors);

}  // namespace kvbench
