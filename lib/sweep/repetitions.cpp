#include "sweep/repetitions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kvbench {
namespace {

// Whether three lists, each of which may stand for everything, have an element in common.
template <class List>
bool share(const std::optional<List>& a, const std::optional<List>& b,
           const std::optional<List>& c) {
  std::optional<List> left;
  for (const auto* list : {&a, &b, &c}) {
    if (!*list) continue;
    if (!left) {
      left = **list;
      continue;
    }
    std::erase_if(*left, [&](const auto& element) {
      return std::find((*list)->begin(), (*list)->end(), element) == (*list)->end();
    });
  }
  return !left || !left->empty();
}

bool meet(const Selection& a, const Selection& b, const Selection& select) {
  return share(a.sequences, b.sequences, select.sequences) &&
         share(a.layers, b.layers, select.layers) && share(a.kv_heads, b.kv_heads, select.kv_heads);
}

void report(const SweepEntry& entry, const SweepEntry& earlier, const Params& point,
            Faults& faults) {
  std::string params;
  for (const auto& [name, value] : point.entries()) {
    params += (params.empty() ? " with " : ", ") + name + " " + to_string(value);
  }
  faults.add(entry.pointer,
             fmt::format("describes the same cells as {} ({}{}); remove one of them, or part them "
                         "with \"where\"",
                         earlier.pointer, entry.algorithm->id, params));
}

}  // namespace

void refuse_repetitions(const SweepConfig& config, Faults& faults) {
  std::map<std::string, std::vector<const SweepEntry*>> by_algorithm;
  for (const SweepEntry& entry : config.entries)
    by_algorithm[entry.algorithm->id].push_back(&entry);
  for (const auto& [id, entries] : by_algorithm) {
    if (entries.size() < 2) continue;
    std::map<std::vector<std::pair<std::string, Value>>, std::vector<const SweepEntry*>> seen;
    std::set<std::pair<const SweepEntry*, const SweepEntry*>> reported;
    for (const SweepEntry* entry : entries) {
      for (const auto& point : entry->points) {
        auto& earlier = seen[point->entries()];
        for (const SweepEntry* other : earlier) {
          if (meet(entry->where, other->where, config.select) &&
              reported.emplace(entry, other).second) {
            report(*entry, *other, *point, faults);
          }
        }
        earlier.push_back(entry);
      }
    }
  }
}

}  // namespace kvbench
