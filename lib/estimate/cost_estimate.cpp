#include "estimate/cost_estimate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "results/record.hpp"
#include "run/multiply_adds.hpp"
#include "sweep/cell_identity.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Hashes by object: the parameters of a setting that was solved for a memory are other objects in
// every group.
using ParamsHashes = std::unordered_map<const Params*, std::uint64_t>;

std::uint64_t hash_of(const Params& params, ParamsHashes& known) {
  const auto [place, is_new] = known.try_emplace(&params, 0);
  if (is_new) place->second = std::hash<std::string>{}(exact_line(params_json(params)));
  return place->second;
}

// Heads of one kind have the same points on streams of the same shape.
std::uint64_t kind_of(const Plan& plan, const HeadCells& head, ParamsHashes& known) {
  const WorkGroup& group = plan.groups[head.group];
  std::uint64_t kind = 0;
  const auto mix = [&kind](std::uint64_t value) {
    kind = (kind ^ value) * 0x9e3779b97f4a7c15ULL;
    kind ^= kind >> 29;
  };
  for (const Index number :
       {group.shape.tokens, group.shape.d, group.shape.dv,
        static_cast<Index>(group.shape.heads_per_kv), group.shape.first_query, group.shape.reach(),
        group.prompt, std::ssize(group.rows), group.hidden, std::ssize(group.layer_records)}) {
    mix(static_cast<std::uint64_t>(number));
  }
  plan.cells.for_each_to_run(head.cells, [&](const PlannedCell& cell, std::size_t count) {
    mix(reinterpret_cast<std::uintptr_t>(cell.algorithm));
    mix(hash_of(*cell.params, known));
    mix(reinterpret_cast<std::uintptr_t>(cell.storage.get()));
    mix(count);
  });
  return kind;
}

std::vector<HeadCells> heads_of(const Plan& plan, const ShardSelection& selection) {
  std::vector<HeadCells> heads;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!selection.groups[g]) continue;
    const std::vector<double> work = head_multiply_adds(plan, plan.groups[g]);
    for (const PlannedHead& head : plan.cells.heads(plan.groups[g].cells)) {
      if (!selection.has(g, head.kv_head)) continue;
      HeadCells to_time{head, 0, work[head.kv_head]};
      plan.cells.for_each_to_run(
          head.cells, [&](const PlannedCell&, std::size_t count) { to_time.to_run += count; });
      if (to_time.to_run > 0) heads.push_back(to_time);
    }
  }
  return heads;
}

}  // namespace

double CostEstimate::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), start_seconds);
}

CostEstimate estimate_cost(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                           const ShardSelection& selection, double seconds, double memory_limit,
                           const ReadStream& read) {
  const auto start = Clock::now();
  return extrapolate_cost(
      plan, selection, seconds,
      [&](const HeadCells& head, double budget) {
        return time_sample(plan, dumps, kernels, head, budget, memory_limit, read);
      },
      [&] { return seconds_since(start); });
}

CostEstimate extrapolate_cost(
    const Plan& plan, const ShardSelection& selection, double seconds,
    const std::function<TimedSample(const HeadCells& head, double budget)>& time_head,
    const std::function<double()>& now) {
  CostEstimate estimate;
  estimate.seconds.assign(plan.groups.size(), 0.0);
  const std::vector<HeadCells> heads = heads_of(plan, selection);
  std::map<std::uint64_t, std::vector<std::size_t>> kinds;  // indices into heads
  ParamsHashes known;
  for (std::size_t h = 0; h < heads.size(); ++h) {
    kinds[kind_of(plan, heads[h], known)].push_back(h);
  }
  const auto work_of = [&](const std::vector<std::size_t>& kind) {
    return std::accumulate(kind.begin(), kind.end(), 0.0,
                           [&](double sum, std::size_t h) { return sum + heads[h].multiply_adds; });
  };
  std::vector<std::pair<double, const std::vector<std::size_t>*>> order;
  for (const auto& [kind, members] : kinds) order.emplace_back(work_of(members), &members);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });

  const double start = now();
  double timed_seconds = 0.0;
  double timed_work = 0.0;
  std::vector<const std::vector<std::size_t>*> untimed;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto& [work, members] = order[k];
    const double left = seconds - (now() - start);
    if (k > 0 && left <= 0.0) {
      untimed.push_back(members);
      continue;
    }
    const HeadCells& head = heads[(*members)[members->size() / 2]];
    const double budget = std::max(left, 0.1) / (order.size() - k) / 2.0;
    const TimedSample sample = time_head(head, budget);
    estimate.cells += sample.cells;
    estimate.unknown_cells += sample.unknown_cells * members->size();
    timed_work += work;
    timed_seconds += sample.seconds * members->size();
    for (const std::size_t h : *members) estimate.seconds[heads[h].group] += sample.seconds;
  }
  for (const auto* members : untimed) {
    for (const std::size_t h : *members) {
      estimate.seconds[heads[h].group] +=
          timed_seconds * heads[h].multiply_adds / std::max(timed_work, 1.0);
    }
  }
  return estimate;
}

}  // namespace kvbench
