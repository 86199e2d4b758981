#include "bench/device_sweep.hpp"

#include <chrono>
#include <deque>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/registry.hpp"
#include "bench/algorithm_cell.hpp"
#include "bench/bench_stream.hpp"
#include "system/parallel.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kTokens = 8192;
constexpr Index kDimension = 128;
constexpr Index kRows = 256;
constexpr int kGroup = 4;
constexpr int kHeads = 64;
constexpr int kCpuHeads = 2;

// A head with memory of its own, so that nothing is shared that heads of a model do not share.
struct Head {
  std::vector<double> keys, values;
  Stream stream;

  explicit Head(int number) {
    const Stream& like = bench_stream(kTokens, kDimension);
    keys.assign(like.keys.data, like.keys.data + kTokens * kDimension);
    values.assign(like.values.data, like.values.data + kTokens * kDimension);
    stream = like;
    stream.id.kv_head = number;
    stream.shape.heads_per_kv = kGroup;
    stream.keys.data = keys.data();
    stream.values.data = values.data();
    stream.queries.assign(kGroup, like.queries.front());
  }
};

Value count(std::int64_t n) { return Value{n}; }

std::vector<ReplayCell> cells_of_a_head() {
  struct Setting {
    const char* algorithm;
    Given given;
    std::uint32_t seeds;
  };
  const std::vector<Setting> settings = {
      {"window", {{"budget", count(1024)}}, 1},
      {"streaming_llm", {{"budget", count(1024)}}, 1},
      {"h2o", {{"budget", count(512)}}, 1},
      {"h2o", {{"budget", count(1024)}}, 1},
      {"keyformer", {{"budget", count(512)}}, 1},
      {"snapkv", {{"budget", count(512)}}, 1},
      {"uniform", {{"T", count(3)}}, 2},
      {"kcenter", {{"budget", count(512)}}, 1},
      {"subgen", {{"delta_quantile", Value{0.01}}, {"t", count(8)}, {"s", count(256)}}, 2},
      {"balancekv_prefill", {{"T", count(1)}}, 1},
      {"balancekv_prefill", {{"T", count(3)}}, 2},
      {"softmax_balance", {{"T", count(2)}}, 1},
      {"balancekv", {{"t", count(256)}, {"T", count(2)}}, 1},
  };
  std::vector<ReplayCell> cells;
  for (const Setting& setting : settings) {
    const AlgorithmDescription& algorithm = *find_algorithm(setting.algorithm);
    for (const ReplayCell& cell :
         cells_of(algorithm, params_of(algorithm, setting.given), 0, setting.seeds)) {
      cells.push_back(cell);
    }
  }
  return cells;
}

double seconds_of(const std::deque<Head>& heads, int count, const Kernels& kernels) {
  const std::vector<ReplayCell> cells = cells_of_a_head();
  ReplaySetting setting;
  setting.prompt = kTokens - kRows;
  setting.rows.resize(kRows);
  std::iota(setting.rows.begin(), setting.rows.end(), kTokens - kRows);
  const auto start = std::chrono::steady_clock::now();
  parallel_for(count, [&](Index h) { last_cell(heads[h].stream, setting, cells, kernels); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

DeviceSweep time_device_sweep(const Kernels& kernels) {
  std::deque<Head> heads;
  for (int h = 0; h < kHeads; ++h) heads.emplace_back(h);
  DeviceSweep sweep;
  sweep.tokens = kTokens;
  sweep.heads = kHeads;
  sweep.cells = kHeads * static_cast<int>(cells_of_a_head().size());
  sweep.cpu_heads = kCpuHeads;
  sweep.host_threads = thread_count();
  TimedKernels timed(kernels);
  seconds_of(heads, 1, timed);  // memory and code are brought in
  timed.reset();
  sweep.device_seconds = seconds_of(heads, kHeads, timed);
  sweep.calls = timed.calls();
  set_thread_count(2);
  sweep.cpu_seconds = seconds_of(heads, kCpuHeads, cpu_kernels());
  set_thread_count(sweep.host_threads);
  return sweep;
}

}  // namespace kvbench::bench
