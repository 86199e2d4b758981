// SubGen's delta-net. Floor: every token's distances to the clusters open at its time, as a matrix
// product on one thread.
#include <benchmark/benchmark.h>

#include "bench/bench_stream.hpp"
#include "bench/floor.hpp"
#include "bench/timed.hpp"
#include "kernels/distance_quantile.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::bench {
namespace {

void BM_clustering(benchmark::State& state) {
  const Stream& stream = bench_stream(state.range(0), state.range(1));
  const double quantile = static_cast<double>(state.range(2)) / 100.0;
  const double delta = distance_quantile(stream.keys, quantile);
  const Clustering once = cpu_kernels().cluster(stream.keys, 0, delta);
  double distances = 0.0;
  std::int32_t open = 0;
  for (const std::int32_t cluster : once.assignment) {
    distances += open;
    open = std::max(open, cluster + 1);
  }
  const double flops = distances * 2.0 * static_cast<double>(stream.shape.d);
  timed(state, flops / machine_floor().fma_flops_one,
        [&] { benchmark::DoNotOptimize(cpu_kernels().cluster(stream.keys, 0, delta)); });
  state.counters["clusters"] = open;
}

BENCHMARK(BM_clustering)
    ->ArgNames({"n", "d", "quantile_%"})
    ->Args({8192, 64, 1})
    ->Args({8192, 64, 5})
    ->Args({8192, 128, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace kvbench::bench
