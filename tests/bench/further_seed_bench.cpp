// The cost of one more seed, next to a first cell: whole replays of each randomised algorithm.
#include <benchmark/benchmark.h>

#include <chrono>
#include <numeric>
#include <string>

#include "algorithms/registry.hpp"
#include "bench/algorithm_cell.hpp"
#include "bench/bench_stream.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kTokens = 8192;
constexpr Index kDimension = 64;
constexpr Index kRows = 256;
constexpr std::uint32_t kSeeds = 16;

double seconds_of(const AlgorithmDescription& algorithm, const Params& params,
                  std::uint32_t seeds) {
  const Stream& stream = bench_stream(kTokens, kDimension);
  ReplaySetting setting;
  setting.prompt = kTokens - kRows;
  setting.rows.resize(kRows);
  std::iota(setting.rows.begin(), setting.rows.end(), kTokens - kRows);
  const std::vector<ReplayCell> cells = cells_of(algorithm, params, 0, seeds);
  const auto start = std::chrono::steady_clock::now();
  last_cell(stream, setting, cells);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// first_ms: a replay of one cell, its shared work and the exact reference included; seed_ms: what
// each of 15 further seeds adds; seed_of_first: their ratio.
void BM_further_seed(benchmark::State& state, const std::string& id, const Given& given) {
  const AlgorithmDescription& algorithm = *find_algorithm(id);
  const Params params = params_of(algorithm, given);
  double first = 0.0, all = 0.0;
  for (auto _ : state) {
    first += seconds_of(algorithm, params, 1);
    all += seconds_of(algorithm, params, kSeeds);
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["first_ms"] = 1e3 * first / rounds;
  state.counters["seed_ms"] = 1e3 * (all - first) / rounds / (kSeeds - 1);
  state.counters["seed_of_first"] = (all - first) / (kSeeds - 1) / first;
}

Value count(std::int64_t n) { return Value{n}; }

#define KVBENCH_FURTHER_SEED(name, id, ...)                        \
  BENCHMARK_CAPTURE(BM_further_seed, name, id, Given{__VA_ARGS__}) \
      ->Unit(benchmark::kMillisecond)                              \
      ->UseRealTime()

KVBENCH_FURTHER_SEED(subgen, "subgen", {"delta_quantile", Value{0.01}}, {"t", count(8)},
                     {"s", count(256)});
KVBENCH_FURTHER_SEED(uniform, "uniform", {"T", count(2)});
KVBENCH_FURTHER_SEED(kcenter, "kcenter", {"budget", count(512)});
KVBENCH_FURTHER_SEED(balancekv_prefill_T1, "balancekv_prefill", {"T", count(1)});
KVBENCH_FURTHER_SEED(balancekv_prefill_T3, "balancekv_prefill", {"T", count(3)});
KVBENCH_FURTHER_SEED(balancekv, "balancekv", {"t", count(256)}, {"T", count(2)});
KVBENCH_FURTHER_SEED(keyformer, "keyformer", {"budget", count(512)});

}  // namespace
}  // namespace kvbench::bench
