// Shards: the KV heads of a plan dealt to machines that know nothing of each other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// Part `index` of `count`, counted from 1.
struct Shard {
  int index = 1;
  int count = 1;

  bool is_whole() const { return count == 1; }
  std::string text() const;  // "2/3"
};

// Most shards that a plan is cut into.
inline constexpr int kMaxShards = 1'000'000;

// Reads "2/3"; throws InputError.
Shard read_shard(const std::string& text);

// Per group of a plan and KV head of its layer.
template <class T>
using PerHead = std::vector<std::vector<T>>;

// The shard, from 1, of each KV head that has cells; 0 for the others. Depends on the plan and on
// `cost` (in any unit) alone, so that machines agree without talking: from the costliest part down,
// each goes to the shard with the least so far, ties to what comes first. A part is one KV head of
// a group; all heads of it if it has records of whole layers, or an algorithm decides for several
// of them together; all groups of a sequence whose layers an algorithm decides for together. With
// more shards than parts some are empty.
PerHead<int> deal_heads(const Plan& plan, const PerHead<double>& cost, int count);

}  // namespace kvbench
