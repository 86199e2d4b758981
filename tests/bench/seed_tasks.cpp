#include <chrono>
#include <memory>
#include <numeric>

#include "algorithms/registry.hpp"
#include "bench/algorithm_cell.hpp"
#include "bench/comparison_tasks.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kRows = 256;

struct Entry {
  std::string id;
  Given given;
};

Value count(std::int64_t n) { return Value{n}; }

// One setting of every algorithm.
const std::vector<Entry>& entries() {
  static const Value budget = count(512);
  static const std::vector<Entry> all = {
      {"exact", {}},
      {"window", {{"budget", budget}}},
      {"dilated_window", {{"budget", budget}}},
      {"streaming_llm", {{"budget", budget}}},
      {"key_attention", {{"budget", budget}}},
      {"h2o", {{"budget", budget}}},
      {"keyformer", {{"budget", budget}}},
      {"snapkv", {{"budget", budget}}},
      {"pyramidkv", {{"budget", budget}}},
      {"uniform", {{"T", count(2)}}},
      {"kcenter", {{"budget", budget}}},
      {"subgen", {{"delta_quantile", Value{kDeltaQuantile}}, {"t", count(8)}, {"s", count(256)}}},
      {"softmax_balance", {{"T", count(2)}}},
      {"balancekv", {{"t", count(256)}, {"T", count(2)}}},
      {"balancekv_prefill", {{"T", count(2)}}},
      {"oracle_topk", {{"budget", budget}}}};
  return all;
}

double replay_seconds(const Stream& stream, const std::vector<const Entry*>& chosen,
                      std::uint32_t seeds) {
  ReplaySetting setting;
  setting.prompt = stream.shape.tokens - kRows;
  setting.rows.resize(kRows);
  std::iota(setting.rows.begin(), setting.rows.end(), setting.prompt);
  std::vector<ReplayCell> cells;
  for (const Entry* entry : chosen) {
    const AlgorithmDescription& algorithm = *find_algorithm(entry->id);
    const Params params = params_of(algorithm, entry->given);
    const std::uint32_t own = algorithm.randomised(params) ? seeds : 1;
    for (const ReplayCell& cell : cells_of(algorithm, params, 0, own)) cells.push_back(cell);
  }
  const auto start = std::chrono::steady_clock::now();
  last_cell(stream, setting, cells);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct SeedCost {
  double first = 0.0;
  double further = 0.0;

  void add(const Stream& stream, const std::vector<const Entry*>& chosen) {
    const double one = replay_seconds(stream, chosen, 1);
    first += one;
    further += (replay_seconds(stream, chosen, 1 + kFurtherSeeds) - one) / kFurtherSeeds;
  }
};

Task seed_task(const std::string& name, std::function<SeedCost()> measure) {
  auto cost = std::make_shared<SeedCost>();
  return {name, [] { return 0.0; }, [cost, measure] { *cost = measure(); },
          [cost] { return Answers{{"~first", cost->first}, {"~further", cost->further}}; }};
}

SeedCost sweep_cost(const Dump& dump, const ComparisonStream& from) {
  std::vector<const Entry*> all;
  for (const Entry& entry : entries()) all.push_back(&entry);
  SeedCost cost;
  for (const LayerInfo& layer : dump.info().find_sequence(from.sequence)->layers) {
    for (int head = 0; head < layer.kv_heads; ++head) {
      cost.add(dump.read_stream(from.sequence, layer.index, head)->stream, all);
    }
  }
  return cost;
}

}  // namespace

std::vector<Task> seed_tasks(const Dump& dump, const ComparisonStream& from) {
  std::vector<Task> tasks;
  for (const Entry& entry : entries()) {
    const AlgorithmDescription& algorithm = *find_algorithm(entry.id);
    if (!algorithm.randomised(params_of(algorithm, entry.given))) continue;
    tasks.push_back(seed_task("seeds_" + entry.id, [&] {
      SeedCost cost;
      cost.add(from.head_data->stream, {&entry});
      return cost;
    }));
  }
  tasks.push_back(seed_task("seeds_sweep", [&] { return sweep_cost(dump, from); }));
  return tasks;
}

}  // namespace kvbench::bench
