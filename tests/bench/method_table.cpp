#include "bench/method_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "algorithms/registry.hpp"
#include "bench/bench_stream.hpp"
#include "bench/floor.hpp"
#include "bench/method_floors.hpp"
#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench::bench {
namespace {

constexpr Index kTokens = 8192;
constexpr Index kDimension = 64;
constexpr int kHeads = 3;
constexpr Index kRows = 256;
constexpr double kBudget = 1638.0;  // a fifth of the tokens
constexpr int kRounds = 5;
// Next to a floor of fewer seconds than this a ratio says nothing of the method.
constexpr double kMinFloor = 1e-4;

const MethodFloor* find(const std::vector<MethodFloor>& floors, const std::string& id) {
  const auto found = std::find_if(floors.begin(), floors.end(),
                                  [&](const MethodFloor& floor) { return floor.id == id; });
  return found == floors.end() ? nullptr : &*found;
}

std::string milliseconds(double seconds) {
  const double ms = 1e3 * seconds;
  return fmt::format("{:.{}f}", ms, ms < 1.0 ? 2 : ms < 100.0 ? 1 : 0);
}

std::string ratio(double seconds, double floor) {
  return floor < kMinFloor ? "" : fmt::format("{:.1f}", seconds / floor);
}

void print_row(const MethodRows& on, const MethodSizes& sizes,
               const AlgorithmDescription& algorithm, const MethodFloor& floor) {
  const Params params = params_of(algorithm, floor.given);
  MethodCell cell = run_method(on, algorithm, params);
  double decide = cell.decide_seconds;
  double answer = cell.answer_seconds;
  for (int round = 1; round < kRounds; ++round) {
    cell = run_method(on, algorithm, params);
    decide = std::min(decide, cell.decide_seconds);
    answer = std::min(answer, cell.answer_seconds);
  }
  const double decide_floor = floor.decide(sizes).seconds();
  const double answers_floor = answer_floor(sizes, cell).seconds();
  fmt::print("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |\n", floor.id, cell.kept,
             milliseconds(decide), milliseconds(decide_floor), ratio(decide, decide_floor),
             milliseconds(answer), milliseconds(answers_floor), ratio(answer, answers_floor),
             floor.formula);
  std::fflush(stdout);
}

}  // namespace

int print_methods(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    if (find_algorithm(id) != nullptr) continue;
    fmt::print(stderr, "--methods: unknown algorithm {}\n", id);
    return 2;
  }
  set_thread_count(1);
  const Stream& stream = bench_stream(kTokens, kDimension, kHeads);
  MethodSizes sizes;
  sizes.n = kTokens;
  sizes.P = kTokens - kRows;
  sizes.R = kRows;
  sizes.G = kHeads;
  sizes.d = sizes.dv = kDimension;
  sizes.B = kBudget;
  sizes.stream = &stream;
  const std::vector<MethodFloor> floors = method_floors(sizes);
  const Floor& floor = machine_floor();
  fmt::print(
      "One thread: {:.1f} GF/s, {:.2f} G exp/s, {:.1f} GB/s, {:.0f} M draws/s; n = {}, P = {}, "
      "R = {}, G = {}, d = dv = {}, B = {}; the best of {}.\n\n",
      floor.fma_flops_one * 1e-9, floor.exps_one * 1e-9, floor.read_bytes_one * 1e-9,
      floor.draws_one * 1e-6, kTokens, sizes.P, kRows, kHeads, kDimension, kBudget, kRounds);
  fmt::print(
      "| method | rows | decide, ms | floor | ratio | answer, ms | floor | ratio | decide's floor "
      "|\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---|\n");
  const MethodRows on(stream, kRows);
  bool complete = true;
  for (const AlgorithmDescription& algorithm : all_algorithms()) {
    const bool is_wanted =
        ids.empty() || std::find(ids.begin(), ids.end(), algorithm.id) != ids.end();
    // given: given_bench.cpp; kvzip: no pass that repeats the prompt is in the stream.
    if (!is_wanted || algorithm.id == "given" || algorithm.id == "kvzip") continue;
    const MethodFloor* const of = find(floors, algorithm.id);
    if (of == nullptr) {
      fmt::print(stderr, "--methods: {} has no floor; add it to method_floors.cpp\n", algorithm.id);
      continue;
    }
    try {
      print_row(on, sizes, algorithm, *of);
    } catch (const CellError& error) {
      fmt::print(stderr, "--methods: {}: {}\n", algorithm.id, error.what());
      complete = false;
    }
  }
  return complete ? 0 : 1;
}

}  // namespace kvbench::bench
