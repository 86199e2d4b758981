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

#include "core/error.hpp"

namespace kvbench {
namespace {

bool read_number(std::string_view text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && text[0] != '-';
}

// Groups that one shard must have together, each list ascending, in the order of their first.
std::vector<std::vector<std::size_t>> parts_of(const Plan& plan) {
  std::vector<std::vector<std::size_t>> parts;
  std::map<std::pair<std::size_t, std::string>, std::size_t> of_sequence;  // index into parts
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const WorkGroup& group = plan.groups[g];
    const bool is_scoped = std::any_of(group.cells.begin(), group.cells.end(), [&](std::size_t c) {
      const PlannedCell& cell = plan.cells[c];
      return cell.scope != nullptr && cell.scope->layers.size() > 1 && !cell.skip_reason;
    });
    if (is_scoped) {
      const auto [place, is_new] =
          of_sequence.emplace(std::pair(group.dump, group.sequence), parts.size());
      if (!is_new) {
        parts[place->second].push_back(g);
        continue;
      }
    }
    parts.push_back({g});
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
        fmt::format("--shard {}: must be i/n with i from 1 to n and n at most {}, such as 2/3",
                    text, kMaxShards));
  }
  return shard;
}

std::vector<int> deal_groups(const Plan& plan, const std::vector<double>& cost, int count) {
  const auto parts = parts_of(plan);
  std::vector<double> weight;
  for (const auto& part : parts) {
    weight.push_back(std::accumulate(part.begin(), part.end(), 0.0,
                                     [&](double sum, std::size_t g) { return sum + cost[g]; }));
  }
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });

  using Load = std::pair<double, int>;  // so far, shard
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  const int used = static_cast<int>(std::min(parts.size(), static_cast<std::size_t>(count)));
  for (int shard = 1; shard <= used; ++shard) loads.emplace(0.0, shard);
  std::vector<int> dealt(plan.groups.size(), 1);
  for (const std::size_t p : order) {
    const auto [load, shard] = loads.top();
    loads.pop();
    for (const std::size_t g : parts[p]) dealt[g] = shard;
    loads.emplace(load + weight[p], shard);
  }
  return dealt;
}

}  // namespace kvbench
