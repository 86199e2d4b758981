#include "pilot.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "core/parallel.hpp"
#include "footprint.hpp"
#include "replay/replay.hpp"
#include "results/bootstrap.hpp"
#include "results/record.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What an answer costs at most, per query head and visible token: only to choose how much of a
// long sequence is tried.
constexpr double kAnswerSeconds = 20e-9;
constexpr std::size_t kFewCells = 8;

// The cells of one KV head of one group.
struct Head {
  std::size_t group = 0;
  int kv_head = 0;
  std::vector<std::size_t> cells;
  double multiply_adds = 0.0;
};

// Heads of one kind have the same points on streams of the same shape.
std::uint64_t kind_of(const Plan& plan, const Head& head) {
  const PlannedGroup& group = plan.groups[head.group];
  std::uint64_t kind = 0;
  const auto mix = [&kind](std::uint64_t value) {
    kind = (kind ^ value) * 0x9e3779b97f4a7c15ULL;
    kind ^= kind >> 29;
  };
  for (const Index number :
       {group.shape.tokens, group.shape.d, group.shape.dv, static_cast<Index>(group.shape.group),
        group.shape.first_query, group.shape.window, group.prompt,
        static_cast<Index>(group.rows.size())}) {
    mix(static_cast<std::uint64_t>(number));
  }
  for (const std::size_t c : head.cells) {
    mix(reinterpret_cast<std::uintptr_t>(plan.cells[c].params.get()));
  }
  return kind;
}

std::vector<Head> heads_of(const Plan& plan, const Share& share) {
  std::vector<Head> heads;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!share.groups[g]) continue;
    std::map<int, Head> of_group;
    for (const std::size_t c : plan.groups[g].cells) {
      if (plan.cells[c].skip_reason) continue;
      Head& head = of_group[plan.cells[c].kv_head];
      head.group = g;
      head.kv_head = plan.cells[c].kv_head;
      head.cells.push_back(c);
    }
    const auto cells = std::accumulate(
        of_group.begin(), of_group.end(), std::size_t{0},
        [](std::size_t sum, const auto& entry) { return sum + entry.second.cells.size(); });
    const double multiply_adds = footprint(plan, plan.groups[g], 1).multiply_adds;
    for (auto& [index, head] : of_group) {
      head.multiply_adds =
          multiply_adds * static_cast<double>(head.cells.size()) / static_cast<double>(cells);
      heads.push_back(std::move(head));
    }
  }
  return heads;
}

// Every so manieth cell, from the middle of each stretch.
std::vector<std::size_t> spread(const std::vector<std::size_t>& cells, std::size_t count) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < count; ++i)
    chosen.push_back(cells[(2 * i + 1) * cells.size() / (2 * count)]);
  return chosen;
}

double visible(const StreamShape& shape, const std::vector<Index>& rows) {
  return std::accumulate(rows.begin(), rows.end(), 0.0, [&](double sum, Index row) {
    return sum + static_cast<double>(row - shape.first_visible(row) + 1);
  });
}

class Trial {
 public:
  Trial(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels, const Head& head)
      : plan_(plan),
        kernels_(kernels),
        group_(plan.groups[head.group]),
        head_(head),
        dump_(dumps[group_.dump]) {}

  // Seconds that the whole head will take; `budget`: seconds to spend.
  double run(double budget) {
    auto start = Clock::now();
    std::unique_ptr<StreamData> data;
    try {
      data = dump_.read_stream(group_.sequence, group_.layer, head_.kv_head, group_.shape.tokens);
    } catch (const InputError&) {
      return 0.0;
    } catch (const std::bad_alloc&) {
      return 0.0;
    }
    read_seconds_ = seconds_since(start);
    cut(data->stream, budget);
    start = Clock::now();
    const std::size_t few = std::min(kFewCells, head_.cells.size());
    double seconds = time(data->stream, spread(head_.cells, few));
    const double per_cell = seconds_since(start) / static_cast<double>(few);
    const auto more = std::min(static_cast<std::size_t>(budget / per_cell), head_.cells.size());
    if (more > 2 * few) seconds = time(data->stream, spread(head_.cells, more));
    return seconds;
  }

  std::size_t cells() const { return cells_; }

 private:
  // Decodes only so many rows as there is time for.
  void cut(Stream& stream, double budget) {
    rows_ = group_.rows;
    const double all = visible(stream.shape, rows_);
    const double affordable =
        budget / (kAnswerSeconds * stream.shape.group * static_cast<double>(kFewCells));
    if (all <= affordable) return;
    const double kept_part = affordable / all;
    const auto kept = static_cast<std::size_t>(kept_part * static_cast<double>(rows_.size()));
    rows_.resize(std::max<std::size_t>(kept, 1));
    const Index tokens = rows_.back() + 1;
    stream.shape.tokens = tokens;
    stream.keys.rows = tokens;
    stream.values.rows = tokens;
    for (ConstMatrix& query : stream.queries) query.rows = tokens - stream.shape.first_query;
    scale_ = all / visible(stream.shape, rows_);
  }

  double time(const Stream& stream, const std::vector<std::size_t>& chosen) {
    cells_ = chosen.size();
    double model_seconds = 0.0;
    std::map<WorkKey, std::unique_ptr<SharedResults>> model_results;
    std::vector<ReplayCell> replayed;
    for (const std::size_t c : chosen) {
      const PlannedCell& cell = plan_.cells[c];
      ReplayCell replay_cell{cell.algorithm, *cell.params, cell.seed.value_or(0), nullptr};
      if (cell.scope) {
        replay_cell.model_results = decide(stream, cell, model_results, model_seconds);
      }
      replayed.push_back(replay_cell);
    }
    std::size_t written = 0;
    const auto done = [&](std::size_t index, CellResult&& result) {
      // Into the journal and, from there, into results.json.
      const Json record = cell_record(plan_, plan_.cells[chosen[index]], result, "");
      written += to_line(Json::parse(to_line(record))).size();
    };
    const ReplaySetting setting{.prompt = group_.prompt,
                                .rows = rows_,
                                .element_bytes = plan_.element_bytes,
                                .keep_row_errors = plan_.keep_rows};
    const auto start = Clock::now();
    const ReplayTiming timing = replay(stream, setting, replayed, kernels_, done);
    const double cells_seconds =
        seconds_since(start) - timing.reference_seconds - timing.shared_seconds;
    const double share = static_cast<double>(head_.cells.size()) / static_cast<double>(cells_);
    const double works = static_cast<double>(distinct_works(stream.shape, head_.cells)) /
                         std::max(1.0, static_cast<double>(distinct_works(stream.shape, chosen)));
    return read_seconds_ + timing.reference_seconds * scale_ +
           (timing.shared_seconds + model_seconds) * works + cells_seconds * share * scale_;
  }

  // What a model-scoped cell follows, decided on this stream alone: each head bears its own part.
  const SharedResults* decide(const Stream& stream, const PlannedCell& cell,
                              std::map<WorkKey, std::unique_ptr<SharedResults>>& known,
                              double& seconds) const {
    const ModelWork work = cell.algorithm->model_work(*cell.params, cell.seed.value_or(0));
    std::unique_ptr<SharedResults>& results = known[work.key()];
    if (!results) {
      results = std::make_unique<SharedResults>();
      const auto start = Clock::now();
      try {
        results->add(work, ModelSetting{[&](const auto& visit) { visit(stream); }, group_.prompt,
                                        stream.shape.tokens, kernels_});
      } catch (const std::exception& error) {
        results->fail(work.key(), error.what());
      }
      seconds += seconds_since(start);
    }
    return results.get();
  }

  // Pieces of work that these cells share among them.
  std::size_t distinct_works(const StreamShape& shape,
                             const std::vector<std::size_t>& cells) const {
    std::set<WorkKey> keys;
    for (const std::size_t c : cells) {
      const PlannedCell& cell = plan_.cells[c];
      const std::uint32_t seed = cell.seed.value_or(0);
      if (cell.scope) {
        keys.insert(cell.algorithm->model_work(*cell.params, seed).key());
        continue;
      }
      for (const SharedWork& piece :
           cell.algorithm->shared_work(*cell.params, shape, group_.prompt, seed)) {
        keys.insert(piece.key());
      }
    }
    return keys.size();
  }

  const Plan& plan_;
  const Kernels& kernels_;
  const PlannedGroup& group_;
  const Head& head_;
  const Dump& dump_;
  std::vector<Index> rows_;
  double scale_ = 1.0;
  double read_seconds_ = 0.0;
  std::size_t cells_ = 0;
};

// The summary has an interval per metric for each point that runs on several units, over all layers
// and for each layer; one such row is computed and timed.
double time_summary(const Plan& plan, const Share& share) {
  struct Point {
    std::map<int, Index> units_of_layer;
    std::size_t last_group = 0;
    int last_head = -1;
  };
  std::unordered_map<const Params*, Point> points;
  for (const PlannedCell& cell : plan.cells) {
    if (cell.skip_reason || !share.has(cell)) continue;
    Point& point = points[cell.params.get()];
    if (point.last_head == cell.kv_head && point.last_group == cell.group) continue;  // a seed more
    point.last_head = cell.kv_head;
    point.last_group = cell.group;
    ++point.units_of_layer[plan.groups[cell.group].layer];
  }
  double rows = 0.0;
  double units = 0.0;
  const auto count = [&](Index units_of_row) {
    if (units_of_row < 2) return;
    rows += 1.0;
    units += static_cast<double>(units_of_row);
  };
  for (const auto& [params, point] : points) {
    Index all = 0;
    for (const auto& [layer, units_of_layer] : point.units_of_layer) {
      count(units_of_layer);
      all += units_of_layer;
    }
    count(all);
  }
  if (rows == 0.0) return 0.0;
  const auto typical = static_cast<Index>(units / rows + 0.5);
  std::vector<std::vector<double>> values(error_paths().size());
  for (std::size_t m = 0; m < values.size(); ++m) {
    for (Index unit = 0; unit < typical; ++unit) {
      values[m].push_back(static_cast<double>((7 * unit + static_cast<Index>(m)) % typical));
    }
  }
  const ResampleCounts counts(typical);
  const auto start = Clock::now();
  bootstrap_intervals(counts, values);
  return seconds_since(start) * std::ceil(rows / thread_count());
}

}  // namespace

double CostEstimate::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), start_seconds + summary_seconds);
}

CostEstimate time_a_sample(const Plan& plan, const std::vector<Dump>& dumps, const Kernels& kernels,
                           const Share& share, double seconds) {
  CostEstimate estimate;
  estimate.seconds.assign(plan.groups.size(), 0.0);
  estimate.summary_seconds = time_summary(plan, share);
  const std::vector<Head> heads = heads_of(plan, share);
  std::map<std::uint64_t, std::vector<std::size_t>> kinds;  // indices into heads
  for (std::size_t h = 0; h < heads.size(); ++h) kinds[kind_of(plan, heads[h])].push_back(h);
  const auto work_of = [&](const std::vector<std::size_t>& kind) {
    return std::accumulate(kind.begin(), kind.end(), 0.0,
                           [&](double sum, std::size_t h) { return sum + heads[h].multiply_adds; });
  };
  std::vector<std::pair<double, const std::vector<std::size_t>*>> order;
  for (const auto& [kind, members] : kinds) order.emplace_back(work_of(members), &members);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });

  const auto start = Clock::now();
  double timed_seconds = 0.0;
  double timed_work = 0.0;
  std::vector<const std::vector<std::size_t>*> untimed;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto& [work, members] = order[k];
    const double left = seconds - seconds_since(start);
    if (k > 0 && left <= 0.0) {
      untimed.push_back(members);
      continue;
    }
    const Head& head = heads[(*members)[members->size() / 2]];
    Trial trial(plan, dumps, kernels, head);
    const double budget = std::max(left, 0.1) / static_cast<double>(order.size() - k) / 2.0;
    const double spent = trial.run(budget);
    estimate.cells += trial.cells();
    timed_work += work;
    timed_seconds += spent * static_cast<double>(members->size());
    for (const std::size_t h : *members) estimate.seconds[heads[h].group] += spent;
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
