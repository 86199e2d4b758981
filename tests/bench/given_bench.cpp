// The cost of replaying a cache, next to the algorithm that kept its rows: whole replays of one
// cell.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "bench/algorithm_cell.hpp"
#include "bench/bench_stream.hpp"
#include "replay/kept_recorder.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kTokens = 8192;
constexpr Index kRows = 256;

ReplaySetting last_rows() {
  ReplaySetting setting;
  setting.prompt = kTokens - kRows;
  setting.rows.resize(kRows);
  std::iota(setting.rows.begin(), setting.rows.end(), kTokens - kRows);
  return setting;
}

// Seconds of a replay of one cell, the exact reference included.
double seconds_of(const Stream& stream, const AlgorithmDescription& algorithm,
                  const Params& params) {
  const auto start = std::chrono::steady_clock::now();
  last_cell(stream, last_rows(), cells_of(algorithm, params, 0, 1));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// built_in_ms, given_ms, and their ratio. `own`: rows have keys and values of their own.
void BM_given(benchmark::State& state, const std::string& id, const Given& parameters, bool own) {
  const Stream& stream = bench_stream(kTokens, 64);
  const AlgorithmDescription& algorithm = *find_algorithm(id);
  const Params params = params_of(algorithm, parameters);
  const ReplaySetting setting = last_rows();
  std::vector<ReplayCell> cells = cells_of(algorithm, params, 0, 1);
  KeptRecorder recorder(stream, setting, cells.front());
  cells.front().watch = &recorder;
  last_cell(stream, setting, cells);
  auto kept = std::make_shared<KeptRows>(recorder.finish().value());
  if (own) {
    for (const KeptRow& row : kept->rows) {
      const double* key = stream.keys.row(row.token);
      const double* value = stream.values.row(row.token);
      kept->keys.insert(kept->keys.end(), key, key + stream.shape.d);
      kept->values.insert(kept->values.end(), value, value + stream.shape.dv);
    }
  }
  const auto cache = std::make_shared<KeptCache>();
  cache->read = [kept](const StreamId&) { return *kept; };
  Params of_cache;
  of_cache.set("file", CacheParameter{"", cache});
  double built_in = 0.0, given = 0.0;
  for (auto _ : state) {
    built_in += seconds_of(stream, algorithm, params);
    given += seconds_of(stream, *find_algorithm("given"), of_cache);
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["rows"] = static_cast<double>(kept->rows.size());
  state.counters["built_in_ms"] = 1e3 * built_in / rounds;
  state.counters["given_ms"] = 1e3 * given / rounds;
  state.counters["given_of_built_in"] = given / built_in;
}

Value count(std::int64_t n) { return Value{n}; }

#define KVBENCH_GIVEN(name, id, own, ...)                        \
  BENCHMARK_CAPTURE(BM_given, name, id, Given{__VA_ARGS__}, own) \
      ->Unit(benchmark::kMillisecond)                            \
      ->UseRealTime()

KVBENCH_GIVEN(streaming_llm, "streaming_llm", false, {"budget", count(1024)});
KVBENCH_GIVEN(snapkv, "snapkv", false, {"budget", count(1024)});
KVBENCH_GIVEN(h2o, "h2o", false, {"budget", count(1024)});
KVBENCH_GIVEN(snapkv_own_vectors, "snapkv", true, {"budget", count(1024)});

}  // namespace
}  // namespace kvbench::bench
