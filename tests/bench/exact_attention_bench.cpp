// Exact attention of one head: every causal row, and the last 256 rows alone.
#include <benchmark/benchmark.h>

#include <numeric>

#include "bench/bench_stream.hpp"
#include "bench/floor.hpp"
#include "bench/timed.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::bench {
namespace {

void exact_attention(benchmark::State& state, Index last_rows) {
  const Stream& stream = bench_stream(state.range(0), state.range(1));
  const Index n = stream.shape.tokens;
  std::vector<Index> rows(last_rows == 0 ? n : last_rows);
  std::iota(rows.begin(), rows.end(), n - std::ssize(rows));
  Index pairs = 0;
  for (const Index row : rows) pairs += row + 1;
  timed(state, exact_attention_floor(pairs, stream.shape.d, stream.shape.dv),
        [&] { benchmark::DoNotOptimize(cpu_kernels().exact_attention(stream, rows)); });
}

void BM_exact_attention_causal(benchmark::State& state) { exact_attention(state, 0); }
void BM_exact_attention_last_256(benchmark::State& state) { exact_attention(state, 256); }

BENCHMARK(BM_exact_attention_causal)
    ->ArgNames({"n", "d"})
    ->Args({8192, 64})
    ->Args({8192, 128})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(BM_exact_attention_last_256)
    ->ArgNames({"n", "d"})
    ->Args({8192, 64})
    ->Args({8192, 128})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace kvbench::bench
