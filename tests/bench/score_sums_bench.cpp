// Score sums of the last 384 rows of one head: what a row costs against the length of the stream.
#include <benchmark/benchmark.h>

#include "bench/bench_stream.hpp"
#include "bench/floor.hpp"
#include "bench/timed.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::bench {
namespace {

// Floor: logits and exponentials of every visible pair once, for the threads used.
void BM_score_sums(benchmark::State& state) {
  constexpr Index kRows = 384;
  const Stream& stream = bench_stream(state.range(0), state.range(1));
  const Index n = stream.shape.tokens;
  const double pairs = static_cast<double>(kRows) * static_cast<double>(n - kRows / 2);
  const double floor =
      pairs * (2.0 * static_cast<double>(stream.shape.d) / machine_floor().fma_flops_all +
               1.0 / machine_floor().exps_all);
  timed(state, floor, [&] {
    benchmark::DoNotOptimize(cpu_kernels().score_sums(stream, n - kRows, n, ScoreRule{}));
  });
}

BENCHMARK(BM_score_sums)
    ->ArgNames({"n", "d"})
    ->Args({8192, 64})
    ->Args({32768, 64})
    ->Args({131072, 64})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace kvbench::bench
