#include "estimate/timed_sample.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "run/memory_estimate.hpp"
#include "run/small_run.hpp"
#include "system/parallel.hpp"

namespace kvbench::test {
namespace timed_sample_test {

TEST_CASE("a head of few cells is computed as a whole, and takes time") {
  const SmallRun run;
  const HeadCells head{run.plan.cells.heads()[3], 2};
  const TimedSample sample = time_sample(run.plan, run.dumps, cpu_kernels(), head, 10.0);
  CHECK(sample.cells == 2);
  CHECK(sample.seconds > 0.0);
  CHECK(run.journal->count(CellState::kMissing) == run.plan.cells.size());
}

TEST_CASE("a long list is sampled: eight cells if there is no time for more") {
  const SmallRun run(R"({"algorithm": "window", "params": {"budget": {"range": [1, 40, 1]}}})");
  const HeadCells head{run.plan.cells.heads()[0], 40};
  REQUIRE(head.cells.size() == 40);
  CHECK(time_sample(run.plan, run.dumps, cpu_kernels(), head, 1e-9).cells == 8);
  CHECK(time_sample(run.plan, run.dumps, cpu_kernels(), head, 100.0).cells == 40);
}

TEST_CASE("a long stream is timed on its first part, as far as time and memory allow") {
  SynthOptions options = small_synth();
  options.tokens = 2048;
  for (const Index query_rows : {Index{0}, Index{1024}}) {
    CAPTURE(query_rows);
    options.query_rows = query_rows;
    const SmallRun run(query_rows == 0 ? entry("attention_matching", R"("budget": 0.1)")
                                       : entry("window", R"("budget": 8)"),
                       all_algorithms(), options);
    const HeadCells head{run.plan.cells.heads()[0], 1};
    const auto sample = [&](double budget, double memory) {
      return time_sample(run.plan, run.dumps, cpu_kernels(), head, budget, memory);
    };
    const double enough = 1e12;
    const double needed = estimate_memory_bytes(run.plan, run.plan.groups[0], thread_count());
    // Whatever the machine: the two shortest parts without time, the whole with much of it.
    CHECK(sample(1e-9, enough).tokens == 256);
    CHECK(sample(1e9, enough).tokens == 2048);
    CHECK(sample(1e-9, enough).seconds > 0.0);
    CHECK(sample(1e9, 1.0).tokens == (query_rows == 0 ? 128 : 0));
    CHECK(sample(1e9, 1.0).unknown_cells == (query_rows == 0 ? 0 : 1));
    const TimedSample half = sample(1e9, needed / 2);
    CHECK(half.tokens == (query_rows == 0 ? 1024 : 0));  // all of the second has to be read
  }
}

// Window, which runs on streams of so many tokens alone.
std::vector<AlgorithmDescription> window_from(Index tokens) {
  std::vector<AlgorithmDescription> table = {*find_algorithm("window")};
  table[0].skip_reason = [tokens](const Params&, const StreamShape& shape,
                                  Index) -> std::optional<std::string> {
    if (shape.tokens >= tokens) return std::nullopt;
    return "too short";
  };
  return table;
}

TEST_CASE("a method that no short part can run is not begun on a long one: its time is unknown") {
  SynthOptions options = small_synth();
  options.layers = 1;
  for (const Index tokens : {Index{2048}, Index{4096}}) {
    CAPTURE(tokens);
    options.tokens = tokens;
    const std::vector<AlgorithmDescription> table = window_from(tokens);
    const SmallRun run(entry("window", R"("budget": [8, 16])"), table, options);
    const HeadCells head{run.plan.cells.heads()[0], 2};
    const TimedSample sample = time_sample(run.plan, run.dumps, cpu_kernels(), head, 1e9);
    CHECK(sample.cells == (tokens == 2048 ? 2 : 0));
    CHECK(sample.unknown_cells == (tokens == 2048 ? 0 : 2));
    CHECK(sample.seconds > 0.0);  // the reference takes some at least
  }
}

TEST_CASE("a budget that was solved for a memory is cut with the stream") {
  SynthOptions options = small_synth();
  options.tokens = 4096;
  options.layers = 1;
  const SmallRun run(entry("h2o", R"("budget": {"memory": 0.5})"), all_algorithms(), options);
  const HeadCells head{run.plan.cells.heads()[0], 1};
  // The two shortest parts, of which the budget keeps a half as well.
  const TimedSample sample = time_sample(run.plan, run.dumps, cpu_kernels(), head, 1e-9);
  CHECK(sample.tokens == 256);
  CHECK(sample.cells == 1);
  CHECK(sample.unknown_cells == 0);
}

TEST_CASE("each method of a head is timed") {
  const std::string cheap =
      R"({"algorithm": "window", "params": {"budget": {"range": [1, 40, 1]}}})";
  const SmallRun run(cheap + ", " + entry("h2o", R"("budget": 8)"));
  const HeadCells head{run.plan.cells.heads()[0], 41};
  // Two of eight cells would be of window alone.
  CHECK(time_sample(run.plan, run.dumps, cpu_kernels(), head, 1e-9).cells == 8);
  CHECK(time_sample(run.plan, run.dumps, cpu_kernels(), head, 1e-9).unknown_cells == 0);
}

TEST_CASE("what a head adds to the records of its layer takes time, too") {
  SynthOptions options = small_synth();
  options.hidden = 1 << 14;
  SmallRun run(R"({"algorithm": "window", "params": {"budget": [4, 8]}})", all_algorithms(),
               options);
  REQUIRE(run.plan.groups[1].layer_records.size() == 2);
  const HeadCells head{run.plan.cells.heads()[3], 2};
  const TimedSample with = time_sample(run.plan, run.dumps, cpu_kernels(), head, 10.0);
  CHECK(with.cells == 2);
  CHECK(with.projection_seconds > 0.0);
  CHECK(with.seconds > with.projection_seconds);
  run.plan.groups[1].layer_records.clear();
  CHECK(time_sample(run.plan, run.dumps, cpu_kernels(), head, 10.0).projection_seconds == 0.0);
}

TEST_CASE("writing the per-row values of a head's cells takes time, too") {
  SmallRun run;
  const HeadCells head{run.plan.cells.heads()[3], 2};
  CHECK(time_sample(run.plan, run.dumps, cpu_kernels(), head, 1.0).rows_seconds == 0.0);
  run.plan.keep_rows = true;
  const TimedSample kept = time_sample(run.plan, run.dumps, cpu_kernels(), head, 1.0);
  CHECK(kept.rows_seconds > 0.0);
  CHECK(kept.seconds > kept.rows_seconds);
}

TEST_CASE("a stream that cannot be read costs nothing") {
  const SmallRun run;
  std::ofstream(run.dump_path(), std::ios::app) << "more";
  const TimedSample sample =
      time_sample(run.plan, run.dumps, cpu_kernels(), {run.plan.cells.heads()[0], 2}, 1.0);
  CHECK(sample.seconds == 0.0);
  CHECK(sample.cells == 0);
}

}  // namespace timed_sample_test
}  // namespace kvbench::test
