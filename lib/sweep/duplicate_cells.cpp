#include "sweep/duplicate_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "json/json.hpp"
#include "sweep/axis.hpp"

namespace kvbench {
namespace {

// Whether three lists, each of which may stand for everything, have an element in common.
template <class List>
bool share(const std::optional<List>& a, const std::optional<List>& b,
           const std::optional<List>& c) {
  std::optional<std::set<typename List::value_type>> left;
  for (const auto* list : {&a, &b, &c}) {
    if (!*list) continue;
    std::set<typename List::value_type> both;
    for (const auto& element : **list) {
      if (!left || left->count(element) != 0) both.insert(element);
    }
    left = std::move(both);
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

// Finds the entries before one with which it can share a cell, without a look at all of them: a
// sweep may have hundreds of thousands. They are looked for under the values of that axis or list
// of `where` under which the fewest are; entries of one value per axis under all of these together,
// too.
class EarlierEntries {
 public:
  using Places = std::vector<std::size_t>;

  explicit EarlierEntries(const std::vector<SweepEntry>& entries) {
    for (const SweepEntry& entry : entries) ++kinds_[kind_of(entry)].entries;
  }

  // Ascending; all that share a cell with `entry` are among them.
  Places candidates(const SweepEntry& entry) const {
    const Kind& kind = kinds_.at(kind_of(entry));
    Found every;  // places of entries without axes and `where`
    every.add(kind.places);
    Found best = fewest(entry, kind.all).value_or(std::move(every));
    if (is_single(entry)) {
      Found alike = fewest(entry, kind.several).value_or(Found());
      const auto same = kind.single.find(values_text(entry));
      if (same != kind.single.end()) alike.add(same->second);
      if (alike.size < best.size) best = std::move(alike);
    }
    return best.sorted();
  }

  void add(const SweepEntry& entry, std::size_t place) {
    Kind& kind = kinds_[kind_of(entry)];
    if (kind.entries < 2) return;  // and an axis may have millions of values
    kind.places.push_back(place);
    const bool single = is_single(entry);
    if (single) kind.single[values_text(entry)].push_back(place);
    const auto lists = lists_of(entry);
    for (auto* indices : {&kind.all, single ? nullptr : &kind.several}) {
      if (indices == nullptr) continue;
      indices->resize(lists.size());
      for (std::size_t i = 0; i < lists.size(); ++i) {
        if (!lists[i]) (*indices)[i].everywhere.push_back(place);
        for (const Value& value : lists[i].value_or(std::vector<Value>())) {
          (*indices)[i].by_value[value].push_back(place);
        }
      }
    }
  }

 private:
  // Entries by the values of one axis, or of one list of `where`.
  struct Index {
    std::map<Value, Places> by_value;
    Places everywhere;  // entries without such a list
  };
  struct Kind {
    std::size_t entries = 0;          // entries of the sweep
    Places places;                    // places of those that were added
    std::vector<Index> all, several;  // several: entries with more than one value on some axis
    std::map<std::string, Places> single;
  };
  struct Found {
    std::vector<const Places*> lists;
    std::size_t size = 0;

    void add(const Places& places) {
      lists.push_back(&places);
      size += places.size();
    }
    Places sorted() const {
      Places places;
      places.reserve(size);
      for (const Places* list : lists) places.insert(places.end(), list->begin(), list->end());
      std::sort(places.begin(), places.end());
      places.erase(std::unique(places.begin(), places.end()), places.end());
      return places;
    }
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
    return exact_line(values);
  }
  // The values of its axes and of its `where`.
  static std::vector<std::optional<std::vector<Value>>> lists_of(const SweepEntry& entry) {
    std::vector<std::optional<std::vector<Value>>> lists;
    for (const auto& [name, values] : entry.axes) lists.emplace_back(values);
    const auto add = [&](const auto& list) {
      lists.emplace_back();
      if (!list) return;
      lists.back().emplace();
      for (const auto& element : *list) {
        if constexpr (std::is_same_v<std::decay_t<decltype(element)>, int>) {
          lists.back()->emplace_back(std::int64_t{element});
        } else {
          lists.back()->emplace_back(element);
        }
      }
    };
    add(entry.where.sequences);
    add(entry.where.layers);
    add(entry.where.kv_heads);
    return lists;
  }
  // Under one of its axes or lists, if it has any.
  static std::optional<Found> fewest(const SweepEntry& entry, const std::vector<Index>& indices) {
    if (indices.empty()) return Found();
    std::optional<Found> best;
    const auto lists = lists_of(entry);
    for (std::size_t i = 0; i < lists.size(); ++i) {
      if (!lists[i]) continue;
      Found found;
      found.add(indices[i].everywhere);
      for (const Value& value : *lists[i]) {
        const auto places = indices[i].by_value.find(value);
        if (places != indices[i].by_value.end()) found.add(places->second);
        if (best && found.size >= best->size) break;
      }
      if (!best || found.size < best->size) best = std::move(found);
    }
    return best;
  }

  std::map<std::string, Kind> kinds_;
};

}  // namespace

void refuse_repetitions(const SweepConfig& config, ErrorList& errors) {
  EarlierEntries earlier_entries(config.entries);
  for (std::size_t i = 0; i < config.entries.size(); ++i) {
    const SweepEntry& entry = config.entries[i];
    bool repeats = false;
    for (const std::size_t j : earlier_entries.candidates(entry)) {
      const SweepEntry& earlier = config.entries[j];
      if (!meet(entry.where, earlier.where, config.select)) continue;
      if (const auto point = common_point(entry, earlier)) {
        errors.add(
            entry.pointer,
            fmt::format("describes the same cells as {} ({}{}); remove one of them, or separate "
                        "them with \"where\"",
                        earlier.pointer, entry.algorithm->id, *point));
        repeats = true;
        break;  // the first of them says enough
      }
    }
    if (!repeats) earlier_entries.add(entry, i);
  }
}

}  // namespace kvbench
