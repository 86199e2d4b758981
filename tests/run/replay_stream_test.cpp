#include "run/replay_stream.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <set>

#include "kernels/cpu_kernels.hpp"
#include "run/small_run.hpp"
#include "sweep/cell_identity.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::test {
namespace replay_stream_test {

using nlohmann::json;

// A record without the members that differ between two runs of a cell.
Json without_times(Json record) {
  record.erase("timing");
  record.erase("repro");
  return record;
}

struct CellOfRun {
  const SmallRun& run;
  PlannedCell cell;
  std::unique_ptr<StreamData> data;

  CellOfRun(const SmallRun& run_, std::size_t c) : run(run_), cell(run_.plan.cells[c]) {
    const WorkGroup& group = run.plan.groups[cell.group];
    data = run.dumps[0].read_stream(group.sequence, group.layer, cell.kv_head);
  }

  StreamCell as_stream_cell() const {
    return {
        .stream = data->stream,
        .fingerprint = run.plan.dumps[0].fingerprint,
        .sweep = {{"algorithms",
                   {{{"algorithm", cell.algorithm->id}, {"params", params_json(*cell.params)}}}},
                  {"evaluate", {{"rows", {{"last", 4}}}}}},
        .place = "here",
        .repro = "again"};
  }
};

TEST_CASE("a cell on a stream in memory has the record that a run over the dump writes") {
  const SmallRun run(entry("exact", "") + ", " + entry("window", R"("budget": 8)") + ", " +
                     entry("keyformer", R"("budget": 16, "scope": "model")") + ", " +
                     entry("keyformer", R"("budget": 16)"));
  std::atomic<bool> stop{false};
  CountingObserver observer;
  execute(run.execution(), observer, stop);
  std::size_t compared = 0;
  for (std::size_t c = 0; c < run.plan.cells.size(); ++c) {
    if (run.plan.cells[c].scope) continue;  // adds up over all layers and heads there
    const CellOfRun cell(run, c);
    const StreamCellResult got = replay_stream(cell.as_stream_cell(), cpu_kernels());
    CHECK(without_times(got.record).dump() == without_times(run.journal->read(c)).dump());
    CHECK(got.record.at("repro") == "again");
    CHECK(got.outputs.size() == 2 * 4 * 8);
    ++compared;
  }
  CHECK(compared == 12);
}

TEST_CASE("an algorithm that decides for the whole model decides from the stream alone") {
  const SmallRun run(entry("keyformer", R"("budget": 16, "scope": "model")"));
  const CellOfRun cell(run, 0);
  const StreamCellResult got = replay_stream(cell.as_stream_cell(), cpu_kernels());
  CHECK(got.record.at("status") == "ok");
  CHECK(got.record.at("key").at("scope_layers") == json::array({0}));
  CHECK(got.record.at("key").at("scope_kv_heads") == json::array({0}));
}

TEST_CASE("kept tokens of a window are those of every row, scored or not") {
  const SmallRun run;
  const CellOfRun cell(run, 1);
  REQUIRE(cell.cell.algorithm->id == "window");
  const StreamCellResult got = replay_stream(cell.as_stream_cell(), cpu_kernels());
  CHECK(got.rows == std::vector<Index>{60, 61, 62, 63});
  const Index prompt = got.record.at("key").at("prompt_tokens");
  for (Index row = prompt; row < 64; ++row) {
    std::set<std::int32_t> tokens;
    for (const KeptToken& kept : got.kept) {
      if (kept.begin <= row && row < kept.end) CHECK(tokens.insert(kept.token).second);
    }
    CAPTURE(row);
    CHECK(tokens.size() == 8);
    CHECK(*tokens.begin() == row - 7);
    CHECK(*tokens.rbegin() == row);
  }
}

TEST_CASE("outputs are the exact ones where nothing is left out") {
  const SmallRun run;
  const CellOfRun cell(run, 0);
  REQUIRE(cell.cell.algorithm->id == "exact");
  const StreamCellResult got = replay_stream(cell.as_stream_cell(), cpu_kernels());
  const ExactRows exact = cpu_kernels().exact_attention(cell.data->stream, got.rows);
  for (Index g = 0; g < 2; ++g) {
    for (Index r = 0; r < 4; ++r) {
      for (Index j = 0; j < 8; ++j) {
        CHECK(got.outputs[(g * 4 + r) * 8 + j] ==
              doctest::Approx(exact.outputs[(r * 2 + g) * 8 + j]).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("a sweep of several cells, and one that is wrong, are refused") {
  const SmallRun run;
  const CellOfRun cell(run, 1);
  StreamCell several = cell.as_stream_cell();
  several.sweep["algorithms"][0]["params"]["budget"] = {8, 16};
  CHECK_THROWS_AS(replay_stream(several, cpu_kernels()), InputError);
  several.sweep["algorithms"][0]["params"]["budget"] = 0;
  CHECK_THROWS_WITH_AS(replay_stream(several, cpu_kernels()),
                       doctest::Contains("here: /algorithms/0"), InputError);
}

TEST_CASE("a skipped cell says why, and a stop is thrown") {
  const SmallRun run;
  const CellOfRun cell(run, 1);
  StreamCell skipped = cell.as_stream_cell();
  skipped.sweep["algorithms"][0] = {{"algorithm", "uniform"},
                                    {"params", {{"budget", 2}, {"sinks", 8}}}};
  const StreamCellResult got = replay_stream(skipped, cpu_kernels());
  CHECK(got.record.at("status") == "skipped");
  CHECK(got.outputs.empty());
  CHECK(got.kept.empty());

  const std::atomic<bool> stop{true};
  const Stoppable stoppable(stop);
  CHECK_THROWS_AS(replay_stream(cell.as_stream_cell(), cpu_kernels()), Stopped);
}

TEST_CASE("a stream's fingerprint depends on all that its values depend on") {
  const SmallRun run;
  const CellOfRun cell(run, 0);
  std::set<std::string> seen = {stream_fingerprint(cell.data->stream)};
  const auto check_changed = [&](const Stream& changed) {
    CHECK(seen.insert(stream_fingerprint(changed)).second);
  };
  Stream changed = cell.data->stream;
  changed.shape.scale *= 2.0;
  check_changed(changed);
  changed.shape.softcap = 3.0;
  check_changed(changed);
  changed.shape.window = 7;
  check_changed(changed);
  changed.id.layer = 5;
  check_changed(changed);
  changed.shape.rope = std::make_shared<const Rope>(Rope{.inv_freq = {1.0}});
  check_changed(changed);
  cell.data->values[17] += 1.0;
  check_changed(changed);
  cell.data->queries[1][3] += 1.0;
  check_changed(changed);
  CHECK(seen.size() == 8);
}

}  // namespace replay_stream_test
}  // namespace kvbench::test
