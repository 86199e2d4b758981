#include "sweep/duplicate_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "sweep/axis.hpp"

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
  const auto same = [](const auto& x, const auto& y) { return x == y || (x && y && *x == *y); };
  for (const auto& storage : b.storages) {
    const bool is_common = std::any_of(a.storages.begin(), a.storages.end(),
                                       [&](const auto& each) { return same(each, storage); });
    if (!is_common) continue;
    return storage ? text + ", storage " + storage_text(*storage) : text;
  }
  return std::nullopt;
}

// Finds the entries before one with which it can share a point, without a look at all of them: a
// sweep may have hundreds of thousands. Entries of one value per axis are known by all of them;
// others are looked for under the values of the axis where the fewest have one in common.
class EarlierEntries {
 public:
  using Places = std::vector<std::size_t>;

  // Ascending; all that share a point with `entry` are among them.
  Places candidates(const SweepEntry& entry) const {
    const auto kind = kinds_.find(kind_of(entry));
    if (kind == kinds_.end()) return {};
    if (!is_single(entry)) return fewest(entry, kind->second.all);
    Places found = fewest(entry, kind->second.several);
    const auto same = kind->second.single.find(values_text(entry));
    if (same != kind->second.single.end()) {
      found.insert(found.end(), same->second.begin(), same->second.end());
      std::sort(found.begin(), found.end());
    }
    return found;
  }

  void add(const SweepEntry& entry, std::size_t place) {
    Kind& kind = kinds_[kind_of(entry)];
    const bool single = is_single(entry);
    if (single) kind.single[values_text(entry)].push_back(place);
    for (ByValue* index : {&kind.all, single ? nullptr : &kind.several}) {
      if (index == nullptr) continue;
      index->resize(entry.axes.size());
      for (std::size_t i = 0; i < entry.axes.size(); ++i) {
        for (const Value& value : entry.axes[i].second) (*index)[i][value].push_back(place);
      }
    }
  }

 private:
  using ByValue = std::vector<std::map<Value, Places>>;  // by axis
  struct Kind {
    ByValue all, several;  // several: entries with more than one value on some axis
    std::map<std::string, Places> single;
  };

  // The algorithm and the names of the axes: what entries with a common point share.
  static std::string kind_of(const SweepEntry& entry) {
    std::string text = entry.algorithm->id;
    for (const auto& [name, values] : entry.axes) text += " " + name;
    return text;
  }
  static bool is_single(const SweepEntry& entry) {
    return std::all_of(entry.axes.begin(), entry.axes.end(),
                       [](const auto& axis) { return axis.second.size() == 1; });
  }
  static std::string values_text(const SweepEntry& entry) {
    nlohmann::json values = nlohmann::json::array();
    for (const auto& [name, list] : entry.axes) values.push_back(value_json(list.front()));
    return values.dump();
  }
  static Places fewest(const SweepEntry& entry, const ByValue& index) {
    std::optional<Places> best;
    for (std::size_t i = 0; i < index.size(); ++i) {
      Places found;
      for (const Value& value : entry.axes[i].second) {
        const auto places = index[i].find(value);
        if (places == index[i].end()) continue;
        found.insert(found.end(), places->second.begin(), places->second.end());
        if (best && found.size() >= best->size()) break;
      }
      if (!best || found.size() < best->size()) best = std::move(found);
    }
    if (!best) return {};
    std::sort(best->begin(), best->end());
    best->erase(std::unique(best->begin(), best->end()), best->end());
    return *best;
  }

  std::map<std::string, Kind> kinds_;
};

}  // namespace

void refuse_repetitions(const SweepConfig& config, ErrorList& errors) {
  EarlierEntries earlier_entries;
  for (std::size_t i = 0; i < config.entries.size(); ++i) {
    const SweepEntry& entry = config.entries[i];
    for (const std::size_t j : earlier_entries.candidates(entry)) {
      const SweepEntry& earlier = config.entries[j];
      if (!meet(entry.where, earlier.where, config.select)) continue;
      if (const auto point = common_point(entry, earlier)) {
        errors.add(
            entry.pointer,
            fmt::format("describes the same cells as {} ({}{}); remove one of them, or separate "
                        "them with \"where\"",
                        earlier.pointer, entry.algorithm->id, *point));
        break;  // the first of them says enough
      }
    }
    earlier_entries.add(entry, i);
  }
}

}  // namespace kvbench
