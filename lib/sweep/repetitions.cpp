#include "sweep/repetitions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
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

// A value that two axes share, or null.
const Value* common_value(const std::vector<Value>& a, const std::vector<Value>& b) {
  const std::set<Value> values(a.begin(), a.end());
  for (const Value& value : b) {
    if (values.count(value) != 0) return &value;
  }
  return nullptr;
}

// A point of both entries, in words: cross products share one if and only if every axis shares a
// value.
std::optional<std::string> common_point(const SweepEntry& a, const SweepEntry& b) {
  if (a.axes.size() != b.axes.size()) return std::nullopt;
  std::string text;
  for (std::size_t i = 0; i < a.axes.size(); ++i) {
    const auto& [name, values] = a.axes[i];
    if (name != b.axes[i].first) return std::nullopt;
    const Value* value = common_value(values, b.axes[i].second);
    if (value == nullptr) return std::nullopt;
    text += (text.empty() ? " with " : ", ") + name + " " + to_string(*value);
  }
  return text;
}

}  // namespace

void refuse_repetitions(const SweepConfig& config, ErrorList& faults) {
  for (std::size_t i = 0; i < config.entries.size(); ++i) {
    const SweepEntry& entry = config.entries[i];
    for (std::size_t j = 0; j < i; ++j) {
      const SweepEntry& earlier = config.entries[j];
      if (entry.algorithm != earlier.algorithm) continue;
      if (!meet(entry.where, earlier.where, config.select)) continue;
      if (const auto point = common_point(entry, earlier)) {
        faults.add(
            entry.pointer,
            fmt::format("describes the same cells as {} ({}{}); remove one of them, or separate "
                        "them with \"where\"",
                        earlier.pointer, entry.algorithm->id, *point));
      }
    }
  }
}

}  // namespace kvbench
