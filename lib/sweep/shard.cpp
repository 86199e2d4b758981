#include "sweep/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <string_view>
#include <utility>

#include "system/error.hpp"

namespace kvbench {
namespace {

bool read_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && text[0] != '-';
}

struct Head {
  std::size_t group;
  int kv_head;
};

enum class Together { kHead, kGroup, kSequence };

// The part of a group that one shard must have together.
Together together_in(const Plan& plan, const WorkGroup& group) {
  Together out = group.layer_records.empty() ? Together::kHead : Together::kGroup;
  plan.cells.for_each_to_run(group.cells, [&](const PlannedCell& cell, std::size_t) {
    if (cell.scope == nullptr) return;
    if (cell.scope->kv_heads.size() > 1) out = std::max(out, Together::kGroup);
    if (cell.scope->layers.size() > 1) out = Together::kSequence;
  });
  return out;
}

// The parts of a plan, in the order of their first heads.
std::vector<std::vector<Head>> parts_of(const Plan& plan) {
  std::vector<std::vector<Head>> parts;
  std::map<std::pair<std::size_t, std::string>, std::size_t> of_sequence;  // index into parts
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const WorkGroup& group = plan.groups[g];
    const Together together = together_in(plan, group);
    std::size_t part = parts.size();
    if (together == Together::kSequence) {
      part = of_sequence.emplace(std::pair(group.dump, group.sequence), part).first->second;
    }
    for (const PlannedHead& head : plan.cells.heads(group.cells)) {
      if (together == Together::kHead) part = parts.size();
      if (part == parts.size()) parts.emplace_back();
      parts[part].push_back({g, head.kv_head});
    }
  }
  return parts;
}

}  // namespace

std::string Shard::text() const { return fmt::format("{}/{}", index, count); }

Shard read_shard(const std::string& text) {
  Shard shard;
  const std::size_t slash = text.find('/');
  const bool is_read = slash != std::string::npos && slash > 0 && slash + 1 < text.size() &&
                       read_number(std::string_view(text).substr(0, slash), shard.index) &&
                       read_number(std::string_view(text).substr(slash + 1), shard.count);
  if (!is_read || shard.index < 1 || shard.index > shard.count || shard.count > kMaxShards) {
    throw InputError(
        fmt::format("--shard: must be i/n with i from 1 to n and n at most {}, such as 2/3, got {}",
                    kMaxShards, text));
  }
  return shard;
}

PerHead<int> deal_heads(const Plan& plan, const PerHead<double>& cost, int count) {
  const auto parts = parts_of(plan);
  std::vector<double> weight;
  for (const auto& part : parts) {
    double sum = 0.0;
    for (const Head& head : part) sum += cost[head.group][head.kv_head];
    weight.push_back(sum);
  }
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });

  using Load = std::pair<double, int>;  // so far, shard
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  const int used = static_cast<int>(std::min(parts.size(), static_cast<std::size_t>(count)));
  for (int shard = 1; shard <= used; ++shard) loads.emplace(0.0, shard);
  PerHead<int> dealt;
  for (const WorkGroup& group : plan.groups) {
    dealt.emplace_back(static_cast<std::size_t>(group.kv_heads), 0);
  }
  for (const std::size_t p : order) {
    const auto [load, shard] = loads.top();
    loads.pop();
    for (const Head& head : parts[p]) {
      dealt[head.group][head.kv_head] = shard;
    }
    loads.emplace(load + weight[p], shard);
  }
  return dealt;
}

}  // namespace kvbench
