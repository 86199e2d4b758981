// Runs a benchmark's body and reports how near it comes to the floor.
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>

namespace kvbench::bench {

// `floor_seconds`: what one call of `body` takes at least. Counters: floor_ms, and of_floor, the
// part of the time that the floor accounts for (1 = nothing left to gain).
template <class Body>
void timed(benchmark::State& state, double floor_seconds, const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) body();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  state.counters["floor_ms"] = 1e3 * floor_seconds;
  state.counters["of_floor"] =
      floor_seconds * static_cast<double>(state.iterations()) / passed.count();
}

}  // namespace kvbench::bench
