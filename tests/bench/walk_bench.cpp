// The self-balancing walk of BalanceKV as evaluated: its blocks' matrices, which all seeds share,
// and one seed's coins.
#include <benchmark/benchmark.h>

#include "bench/bench_stream.hpp"
#include "bench/floor.hpp"
#include "bench/timed.hpp"
#include "kernels/balance_walk.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kTokens = 8192;
constexpr Index kDimension = 64;
constexpr Index kBlock = 256;
constexpr Index kBlocks = kTokens / kBlock;
constexpr double kPairs = static_cast<double>(kBlocks * kBlock * (kBlock - 1) / 2);

ConstMatrix block_of(ConstMatrix all, Index b) { return {all.row(b * kBlock), kBlock, all.cols}; }

WalkMatrix matrix_of(const Stream& stream, Index b) {
  WalkKernel kernel;
  kernel.beta = 0.1 * stream.shape.scale;
  kernel.value_offset = 0.025;
  return {kernel, block_of(stream.keys, b), block_of(stream.values, b)};
}

// All blocks of one head, one thread. Floor: two inner products and an exponential per pair.
void BM_walk_matrices(benchmark::State& state) {
  const Stream& stream = bench_stream(kTokens, kDimension);
  const double floor = kPairs * 2.0 * 2.0 * kDimension / machine_floor().fma_flops_one +
                       kPairs * machine_floor().threads / machine_floor().exps_all;
  timed(state, floor, [&] {
    for (Index b = 0; b < kBlocks; ++b) benchmark::DoNotOptimize(matrix_of(stream, b));
  });
}

// One more seed on the same matrices, one thread. Floor: one read of them.
void BM_walk_seed(benchmark::State& state) {
  const Stream& stream = bench_stream(kTokens, kDimension);
  std::vector<WalkMatrix> matrices;
  for (Index b = 0; b < kBlocks; ++b) matrices.push_back(matrix_of(stream, b));
  std::uint32_t seed = 0;
  timed(state, kPairs * sizeof(double) / machine_floor().read_bytes_one, [&] {
    const CounterRng random(++seed, 0, "bench/walk");
    for (Index b = 0; b < kBlocks; ++b) {
      std::vector<double> uniforms;
      for (Index j = 0; j < kBlock; ++j) {
        uniforms.push_back(random.uniform(static_cast<std::uint32_t>(b * kBlock + j)));
      }
      benchmark::DoNotOptimize(balance_walk({.gain = 4.0}, matrices[b], uniforms));
    }
  });
}

BENCHMARK(BM_walk_matrices)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_walk_seed)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace kvbench::bench
