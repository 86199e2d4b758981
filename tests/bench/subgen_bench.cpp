// The cost of one more SubGen cell once its clustering is known: the reservoirs, the answers, and
// whole replays.
#include <benchmark/benchmark.h>

#include <cmath>
#include <numeric>

#include "algorithms/registry.hpp"
#include "bench/bench_stream.hpp"
#include "bench/floor.hpp"
#include "bench/timed.hpp"
#include "numerics/canonical.hpp"
#include "replay/replay.hpp"
#include "sketch/estimator.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kTokens = 8192;
constexpr Index kDimension = 64;
constexpr Index kRows = 256;
const char* const kQuantile = "delta_quantile";

Params subgen_params(std::int64_t t, std::int64_t s) {
  Params params;
  for (const Parameter& parameter : find_algorithm("subgen")->parameters) {
    if (parameter.name == kQuantile)
      params.set(kQuantile, 0.01);
    else if (parameter.name == "t")
      params.set("t", t);
    else if (parameter.name == "s")
      params.set("s", s);
    else if (parameter.default_value)
      params.set(parameter.name, *parameter.default_value);
  }
  return params;
}

std::vector<Index> last_rows() {
  std::vector<Index> rows(kRows);
  std::iota(rows.begin(), rows.end(), kTokens - kRows);
  return rows;
}

// A cell's inputs with its shared work done.
struct Prepared {
  const Stream& stream = bench_stream(kTokens, kDimension);
  Params params;
  SharedResults shared;

  Prepared(std::int64_t t, std::int64_t s) : params(subgen_params(t, s)) {
    for (const SharedWork& work :
         find_algorithm("subgen")->shared_work(params, stream.shape, kTokens - kRows, 0)) {
      shared.add(work, SharedContext{stream, kTokens - kRows, cpu_kernels()});
    }
  }

  std::unique_ptr<Algorithm> run(std::uint32_t seed) const {
    auto algorithm = find_algorithm("subgen")->create(
        params, {stream, kTokens - kRows, seed, cpu_kernels(), shared});
    algorithm->extend(0, kTokens - kRows);
    algorithm->finish_prompt();
    algorithm->extend(kTokens - kRows, kTokens);
    return algorithm;
  }
};

// Draws that Algorithm 1's reservoirs need at least: one per replacement, in expectation.
double expected_draws(const Stream& stream, Index clusters, double t, double s) {
  double mu = 0.0, first = 0.0;
  for (Index j = 0; j < stream.shape.tokens; ++j) {
    const double* v = stream.values.row(j);
    mu += canonical_dot(v, v, stream.shape.dv);
    if (j == 0) first = mu;
  }
  const auto m = static_cast<double>(clusters);
  const double per_cluster = static_cast<double>(stream.shape.tokens) / m;
  return s * (1.0 + std::log(mu / first)) + m * t * (1.0 + std::log(per_cluster));
}

// Floor: the draws of all replacements on one thread.
void BM_subgen_reservoirs(benchmark::State& state) {
  const Prepared prepared(state.range(0), state.range(1));
  const Index clusters = prepared.run(0)->clusters()->final_count;
  const double draws =
      expected_draws(prepared.stream, clusters, static_cast<double>(state.range(0)),
                     static_cast<double>(state.range(1)));
  std::uint32_t seed = 0;
  timed(state, draws_floor(draws), [&] { benchmark::DoNotOptimize(prepared.run(++seed)); });
  state.counters["clusters"] = static_cast<double>(clusters);
}

// The last 256 rows answered from one sketch. Floor: weighting each held token (one fused
// multiply-add per sum) and gathering the values of the slots, on one thread.
void BM_subgen_answers(benchmark::State& state) {
  const Prepared prepared(state.range(0), state.range(1));
  const auto algorithm = prepared.run(1);
  const Stream& stream = prepared.stream;
  LogitBlock block;
  cpu_kernels().logits(stream, last_rows(), block);
  const ExactRows exact = cpu_kernels().exact_attention(stream, last_rows());

  const auto held = static_cast<double>(distinct_tokens(algorithm->sketch()));
  const auto values = static_cast<double>(algorithm->sketch().kept_counts().values);
  const double flops = kRows * 2.0 * (2.0 * held + std::min(held, values) * kDimension);
  Estimator estimator(stream, cpu_kernels());
  timed(state, flops / machine_floor().fma_flops_one, [&] {
    for (std::size_t r = 0; r < kRows; ++r) {
      estimator.set_sketch(algorithm->sketch());
      const auto at = static_cast<Index>(r);
      estimator.enqueue(
          {exact.rows[r], 0, at, exact_of(exact, at, kDimension), logits_of(block, at)});
      if (estimator.pending() < 48 && r + 1 < kRows) continue;
      estimator.flush(
          [](const Answer& estimate) { benchmark::DoNotOptimize(estimate.answer.data()); });
    }
  });
  state.counters["tokens"] = held;
}

// A whole replay of `seeds` cells that differ in their seed: reference, clustering, answers,
// errors. Floor: exact attention of the scored rows and every cell's draws.
void BM_subgen_replay(benchmark::State& state) {
  const Stream& stream = bench_stream(kTokens, kDimension);
  const std::int64_t t = 8, s = 256;
  std::vector<ReplayCell> cells;
  for (std::uint32_t seed = 0; seed < state.range(0); ++seed) {
    cells.push_back({find_algorithm("subgen"), subgen_params(t, s), seed});
  }
  ReplaySetting setting;
  setting.prompt = kTokens - kRows;
  setting.rows = last_rows();
  const Index clusters = Prepared(t, s).run(0)->clusters()->final_count;
  const double draws =
      expected_draws(stream, clusters, static_cast<double>(t), static_cast<double>(s));
  const Index pairs = kRows * (2 * kTokens - kRows + 1) / 2;
  const double floor = exact_attention_floor(pairs, kDimension, kDimension) +
                       draws_floor(draws) * static_cast<double>(cells.size()) /
                           static_cast<double>(machine_floor().threads);
  timed(state, floor, [&] {
    replay(stream, setting, cells, cpu_kernels(),
           [](std::size_t, CellResult&& result) { benchmark::DoNotOptimize(result); });
  });
}

BENCHMARK(BM_subgen_reservoirs)
    ->ArgNames({"t", "s"})
    ->Args({8, 256})
    ->Args({16, 4096})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(BM_subgen_answers)
    ->ArgNames({"t", "s"})
    ->Args({8, 256})
    ->Args({16, 4096})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(BM_subgen_replay)
    ->ArgNames({"seeds"})
    ->Arg(1)
    ->Arg(17)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace kvbench::bench
