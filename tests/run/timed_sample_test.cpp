#include "run/timed_sample.hpp"

#include <doctest/doctest.h>

#include <fstream>

#include "run/small_run.hpp"

namespace kvbench::test {
namespace {

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

// 64 tokens, half of them the prompt; what two query heads and eight cells can pay of that budget.
double budget_of(double pairs) { return pairs * 20e-9 * 2 * 8; }

TEST_CASE("where rows of the prompt are scored, decode rows are visited, and count, too") {
  SmallRun run(entry("oracle_topk", R"("budget": [4, 8])"));
  WorkGroup& group = run.plan.groups[0];
  REQUIRE(group.prompt == 32);
  group.rows.clear();
  for (Index row = 0; row < 32; ++row) group.rows.push_back(row);
  const HeadCells head{run.plan.cells.heads()[0], 2};
  const auto scale = [&](double pairs) {
    return time_sample(run.plan, run.dumps, cpu_kernels(), head, budget_of(pairs)).scale;
  };
  // All 64 rows: 1 + .. + 64 = 2080 pairs; of a tenth rows 5, 16, 26 and 32 to 34.
  CHECK(scale(2081.0) == 1.0);
  CHECK(scale(208.0) == 2080.0 / (6 + 17 + 27 + 33 + 34 + 35));
}

TEST_CASE("a method that looks at the scored rows alone is scaled by those") {
  SmallRun run(entry("window", R"("budget": [4, 8])"));
  const HeadCells head{run.plan.cells.heads()[0], 2};
  REQUIRE(run.plan.groups[0].rows == std::vector<Index>{60, 61, 62, 63});
  const TimedSample half = time_sample(run.plan, run.dumps, cpu_kernels(), head, budget_of(126.0));
  // The last two of the first 16 decode rows, 46 and 47.
  CHECK(half.scale == (61.0 + 62 + 63 + 64) / (47 + 48));
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

}  // namespace
}  // namespace kvbench::test
