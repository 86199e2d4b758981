// Norms of every V_i where the largest singular values crowd: the stream's values are gaussian.
#include <benchmark/benchmark.h>

#include <numeric>

#include "bench/bench_stream.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::bench {
namespace {

void BM_value_norms_gaussian(benchmark::State& state) {
  const Stream& stream = bench_stream(state.range(0), state.range(1));
  std::vector<Index> rows(stream.shape.tokens);
  std::iota(rows.begin(), rows.end(), Index{0});
  std::vector<double> spectral;
  std::vector<double> frobenius;
  for (auto _ : state) {
    cpu_kernels().value_norms(stream, rows, spectral, frobenius);
    benchmark::DoNotOptimize(spectral.data());
  }
}

BENCHMARK(BM_value_norms_gaussian)
    ->ArgNames({"n", "d"})
    ->Args({8192, 64})
    ->Args({8192, 128})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace kvbench::bench
