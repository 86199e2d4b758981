// The cells of a plan. A sweep may have ten million: of each is kept what tells it from the others
// of its KV head, 22 bytes, and what it shares with others once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "storage/storage.hpp"
#include "system/hash.hpp"
#include "system/shared_text.hpp"

namespace kvbench {

// Indices of cells that follow each other in a plan.
using CellRange = std::ranges::iota_view<std::size_t, std::size_t>;

// Layers and KV heads that a layer- or model-scoped algorithm decides for together.
struct Scope {
  std::vector<int> layers;
  std::vector<int> kv_heads;

  bool operator==(const Scope&) const = default;
};

// Part shared by cells that differ in group, KV head or seed alone.
struct PlannedSetting {
  SharedText label;  // has a value
  const AlgorithmDescription* algorithm = nullptr;
  // Never null; shared by the settings of one point, of one group where a budget is given as memory
  // and solved there.
  std::shared_ptr<const Params> params;
  std::shared_ptr<const Scope> scope;      // beyond a KV head, else null
  std::shared_ptr<const Storage> storage;  // null: float; shared by the settings of an entry
  SharedText skip_reason;                  // set: will not run
  bool is_seeded = false;                  // its cells differ in their seeds; else none has one
};

// One result record to be, as Plan::cells hands it out: it refers to the plan.
struct PlannedCell {
  std::size_t index = 0;  // in the plan
  Key128 id;              // hash of the canonical JSON of cell_key
  std::size_t group = 0;  // index into Plan::groups
  int kv_head = 0;
  std::optional<std::uint32_t> seed;  // none: deterministic
  std::size_t setting = 0;            // index into settings()
  // The setting's.
  const SharedText& label;
  const AlgorithmDescription* algorithm;
  const std::shared_ptr<const Params>& params;
  const std::shared_ptr<const Scope>& scope;
  const std::shared_ptr<const Storage>& storage;
  const SharedText& skip_reason;

  // Seed that the cell is computed with: a deterministic one draws nothing, whatever its seed.
  std::uint32_t seed_or_zero() const { return seed.value_or(0); }
};

// The cells of one KV head of a group.
struct PlannedHead {
  std::size_t group = 0;  // index into Plan::groups
  int kv_head = 0;
  CellRange cells;  // not empty
};

class PlannedCells {
 public:
  static constexpr std::size_t kMaxSettings = std::size_t{1} << 24;
  static constexpr std::size_t kMaxSeeds = std::size_t{1} << 20;

  // Goes through the cells in their order.
  class Iterator {
   public:
    using value_type = PlannedCell;
    using difference_type = std::ptrdiff_t;

    Iterator(const PlannedCells& cells, std::size_t cell, std::size_t head)
        : cells_(&cells), cell_(cell), head_(head) {}
    PlannedCell operator*() const { return cells_->made(cell_, cells_->heads_[head_]); }
    Iterator& operator++() {
      if (++cell_ == *cells_->heads_[head_].cells.end()) ++head_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return cell_ == other.cell_; }

   private:
    const PlannedCells* cells_;
    std::size_t cell_;
    std::size_t head_;  // index into heads_
  };

  std::size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  PlannedCell operator[](std::size_t cell) const { return made(cell, heads_[head_of(cell)]); }
  PlannedCell front() const { return (*this)[0]; }
  Iterator begin() const { return {*this, 0, 0}; }
  Iterator end() const { return {*this, size(), heads_.size()}; }

  const Key128& id(std::size_t cell) const { return ids_[cell]; }
  // visit(first, count) for each part of `cells` that is of one KV head and one setting: the first
  // cell, which equals the others except in id and seed, and how many there are.
  template <class Visit>
  void for_each_setting(const CellRange& cells, const Visit& visit) const;
  // The same of settings that will run.
  template <class Visit>
  void for_each_to_run(const CellRange& cells, const Visit& visit) const;

  const std::vector<PlannedHead>& heads() const { return heads_; }
  // The heads that have one of these cells.
  std::span<const PlannedHead> heads(const CellRange& cells) const;
  const std::vector<PlannedSetting>& settings() const { return settings_; }
  // Seeds of the sweep, in its order.
  const std::vector<std::uint32_t>& seeds() const { return seeds_; }

  // For those who make a plan. `seed`: an index into seeds(), which counts where the setting is
  // seeded.
  void set_seeds(std::vector<std::uint32_t> seeds) { seeds_ = std::move(seeds); }
  void reserve(std::size_t cells);
  std::size_t add_setting(PlannedSetting setting);
  PlannedSetting& setting(std::size_t index) { return settings_[index]; }
  void add(std::size_t group, int kv_head, std::size_t setting, std::size_t seed, const Key128& id);
  // `group`: the index that each group has now.
  void renumber_groups(const std::vector<std::size_t>& group);

 private:
  // Indices of a cell's setting, in 24 bits, and of its seed, in 20.
  class Place {
   public:
    Place(std::size_t setting, std::size_t seed) : Place(setting | seed << 24) {}
    std::size_t setting() const { return bits() & 0xffffff; }
    std::size_t seed() const { return bits() >> 24; }

   private:
    explicit Place(std::uint64_t bits)
        : words_{static_cast<std::uint16_t>(bits), static_cast<std::uint16_t>(bits >> 16),
                 static_cast<std::uint16_t>(bits >> 32)} {}
    std::uint64_t bits() const {
      return words_[0] | std::uint64_t{words_[1]} << 16 | std::uint64_t{words_[2]} << 32;
    }

    std::array<std::uint16_t, 3> words_;
  };

  // Index into heads_.
  std::size_t head_of(std::size_t cell) const;
  PlannedCell made(std::size_t cell, const PlannedHead& head) const;

  std::vector<PlannedSetting> settings_;
  std::vector<PlannedHead> heads_;
  std::vector<Key128> ids_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> seeds_;
};

inline PlannedCell PlannedCells::made(std::size_t cell, const PlannedHead& head) const {
  const Place place = places_[cell];
  const PlannedSetting& setting = settings_[place.setting()];
  return {.index = cell,
          .id = ids_[cell],
          .group = head.group,
          .kv_head = head.kv_head,
          .seed = setting.is_seeded ? std::optional(seeds_[place.seed()]) : std::nullopt,
          .setting = place.setting(),
          .label = setting.label,
          .algorithm = setting.algorithm,
          .params = setting.params,
          .scope = setting.scope,
          .storage = setting.storage,
          .skip_reason = setting.skip_reason};
}

template <class Visit>
void PlannedCells::for_each_setting(const CellRange& cells, const Visit& visit) const {
  for (const PlannedHead& head : heads(cells)) {
    const std::size_t end = std::min(*cells.end(), *head.cells.end());
    for (std::size_t first = std::max(*cells.begin(), *head.cells.begin()), next = first;
         first < end; first = next) {
      const std::size_t setting = places_[first].setting();
      while (next < end && places_[next].setting() == setting) ++next;
      visit(made(first, head), next - first);
    }
  }
}

template <class Visit>
void PlannedCells::for_each_to_run(const CellRange& cells, const Visit& visit) const {
  for_each_setting(cells, [&](const PlannedCell& first, std::size_t count) {
    if (!first.skip_reason) visit(first, count);
  });
}

}  // namespace kvbench
