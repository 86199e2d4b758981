#include "run/execute.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <stdexcept>

#include "run/small_run.hpp"

namespace kvbench::test {
namespace execute_test {

std::size_t count(const std::vector<bool>& flags) {
  std::size_t sum = 0;
  for (const bool flag : flags) sum += flag ? 1 : 0;
  return sum;
}

TEST_CASE("a run computes every cell once, head by head, and tells of each") {
  const SmallRun run;
  std::atomic<bool> stop{false};
  CountingObserver observer;
  CHECK(count(pending_cells(run.execution())) == 8);
  const auto timing = execute(run.execution(), observer, stop);
  CHECK(run.journal->count(CellState::kOk) == 8);
  CHECK(observer.begun == std::vector<std::size_t>{8});
  CHECK(observer.done == 8);
  CHECK(observer.places ==
        std::vector<std::string>{"sequence 0 layer 0 head 0", "sequence 0 layer 0 head 1",
                                 "sequence 0 layer 1 head 0", "sequence 0 layer 1 head 1"});
  REQUIRE(timing.size() == 2);
  CHECK((timing[0] && timing[1]));
  for (std::size_t c = 0; c < run.plan.cells.size(); ++c) {
    const std::string repro = run.journal->read(c).at("repro");
    CHECK(repro.find(" --only " + run.plan.cells[c].id.text() + " ") != std::string::npos);
  }

  CountingObserver again;
  execute(run.execution(), again, stop);
  CHECK(again.begun == std::vector<std::size_t>{0});
  CHECK(again.done == 0);
}

TEST_CASE("cells that are not selected are left alone") {
  SmallRun run;
  run.selection = select_shard(run.plan, "1/2");
  std::atomic<bool> stop{false};
  CountingObserver observer;
  const auto timing = execute(run.execution(), observer, stop);
  CHECK(observer.done == 4);
  CHECK(run.journal->count(CellState::kOk) == 4);
  for (std::size_t g = 0; g < run.plan.groups.size(); ++g) {
    CHECK(timing[g].has_value() == run.selection.groups[g]);
  }
}

TEST_CASE("a run that was stopped leaves what it had not begun") {
  const SmallRun run;
  std::atomic<bool> stop{true};
  CountingObserver observer;
  execute(run.execution(), observer, stop);
  CHECK(observer.done == 0);
  CHECK(run.journal->count(CellState::kMissing) == 8);
}

TEST_CASE("a stream that cannot be read fails its cells, and a retry computes them") {
  SmallRun run;
  const std::string path = run.dump_path();
  const std::string copy = path + ".copy";
  std::filesystem::copy_file(path, copy);
  std::ofstream(path, std::ios::app) << "more";
  std::atomic<bool> stop{false};
  CountingObserver observer;
  execute(run.execution(), observer, stop);
  CHECK(run.journal->count(CellState::kFailed) == 8);
  CHECK(observer.done == 8);
  CHECK(run.journal->read(0).at("reason").get<std::string>().find(path) == 0);

  run.dumps[0] = Dump(copy);
  Execution execution = run.execution();
  CHECK(count(pending_cells(execution)) == 0);
  execution.retry_failed = true;
  CHECK(count(pending_cells(execution)) == 8);
  execute(execution, observer, stop);
  CHECK(run.journal->count(CellState::kOk) == 8);
}

// `window`, but no cell of it can be computed.
std::vector<AlgorithmDescription> failing_window() {
  std::vector<AlgorithmDescription> table = {*find_algorithm("exact"), *find_algorithm("window")};
  table[1].create = [](const auto&, const auto&) -> std::unique_ptr<Algorithm> {
    throw CellError("planted");
  };
  return table;
}

TEST_CASE("a cell that fails is recorded with its reason, the others go on") {
  const auto table = failing_window();
  const SmallRun run(entry("exact", "") + ", " + entry("window", R"("budget": 8)"), table);
  std::atomic<bool> stop{false};
  CountingObserver observer;
  execute(run.execution(), observer, stop);
  CHECK(run.journal->count(CellState::kOk) == 4);
  CHECK(run.journal->count(CellState::kFailed) == 4);
  for (std::size_t c = 0; c < run.plan.cells.size(); ++c) {
    if (run.journal->state(c) != CellState::kFailed) continue;
    CHECK(run.plan.cells[c].algorithm->id == "window");
    CHECK(run.journal->read(c).at("reason") == "planted");
  }
}

TEST_CASE("a device that failed ends the run, and its failed cell is not recorded") {
  const auto table = failing_window();
  const SmallRun run(entry("window", R"("budget": 8)"), table);
  struct : RunDevice {
    void throw_if_failed() const override { throw std::domain_error("the device is gone"); }
  } gone;
  const Execution execution = run.execution(gone);
  std::atomic<bool> stop{false};
  CountingObserver observer;
  CHECK_THROWS_WITH_AS(execute(execution, observer, stop), "the device is gone", std::domain_error);
  CHECK(run.journal->count(CellState::kMissing) == 4);
}

TEST_CASE("cells of a layer are decided together, each layer by itself, the model's all together") {
  const SmallRun run(entry("adakv", R"("budget": 12, "window": 4, "kernel": 3, "floor": 0)") +
                     ", " + entry("cake", R"("budget": 12, "window": 4)"));
  std::atomic<bool> stop{false};
  CountingObserver observer;
  execute(run.execution(), observer, stop);
  std::map<std::pair<std::string, int>, int> selected;  // by algorithm and layer
  double preference = 0.0;                              // cake's: each layer's part of all layers
  for (std::size_t c = 0; c < run.plan.cells.size(); ++c) {
    const PlannedCell& cell = run.plan.cells[c];
    const Json record = run.journal->read(c);
    REQUIRE(record.at("status") == "ok");
    const Json& derived = record.at("derived");
    const int layer = run.plan.groups[cell.group].layer;
    selected[{cell.algorithm->id, layer}] += derived.at("selected").get<int>();
    if (cell.algorithm->id == "adakv") CHECK(derived.at("layer_tokens") == 2 * 12);
    if (cell.algorithm->id == "cake") preference += derived.at("preference").get<double>();
  }
  // 8 of each of two heads besides the window.
  for (const int layer : {0, 1}) CHECK(selected.at({"adakv", layer}) == 16);
  CHECK(selected.at({"cake", 0}) + selected.at({"cake", 1}) == 2 * 16);
  CHECK(preference == doctest::Approx(2.0));  // once per KV head; a layer alone would have 1 each
}

}  // namespace execute_test
}  // namespace kvbench::test
