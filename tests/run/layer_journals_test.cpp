#include "run/layer_journals.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "run/small_run.hpp"
#include "sweep/cell_identity.hpp"
#include "sweep/read_sweep.hpp"

namespace kvbench::test {
namespace layer_journals_test {

SynthOptions other_synth() {
  SynthOptions options = small_synth();
  options.seed = 7;  // another dump of the same shapes
  return options;
}

TEST_CASE("records of another dump's journal become the plan's, each once") {
  const SmallRun from;
  std::atomic<bool> stop{false};
  CountingObserver observer;
  execute(from.execution(), observer, stop);
  SmallRun to(entry("exact", "") + ", " + entry("window", R"("budget": 8)"), all_algorithms(),
              other_synth());
  const std::string fingerprint = from.plan.dumps.front().fingerprint;
  const std::string own = to.plan.dumps.front().fingerprint;
  REQUIRE(fingerprint != own);

  take_over(from.journal_path(), own, to.execution());
  CHECK(to.journal->count(CellState::kOk) == 0);
  for (int i = 0; i < 2; ++i) {
    take_over(from.journal_path(), fingerprint, to.execution());
    CHECK(to.journal->count(CellState::kOk) == 8);
  }
  for (std::size_t c = 0; c < to.plan.cells.size(); ++c) {
    Json before = from.journal->read(c);
    const Json after = to.journal->read(c);
    CHECK(after.at("id") == to.plan.cells[c].id.text());
    CHECK(after.at("key") == Json(cell_key(to.plan, to.plan.cells[c])));
    CHECK(after.at("key").at("dump") == own);
    const std::string repro = after.at("repro");
    CHECK(repro.find(to.plan.cells[c].id.text()) != std::string::npos);
    CHECK(after.at("errors") == before.at("errors"));
    CHECK(after.at("memory") == before.at("memory"));
  }
  // As a run that goes on finds them: none is damaged, none is written twice.
  to.open_journal();
  CHECK(to.journal->count(CellState::kOk) == 8);
  CHECK(to.journal->damaged_lines() == 0);
  CountingObserver again;
  execute(to.execution(), again, stop);
  CHECK(again.done == 0);
}

SweepConfig config_of(const SweepFolder& folder, const std::string& entries,
                      const std::string& more = "") {
  return parse_sweep(sweep(entries, more), folder.file("quick.json"), {}, all_algorithms());
}

TEST_CASE("a sweep is narrowed to a layer of a sequence") {
  const SweepFolder folder;
  const std::string of_layers =
      R"({"algorithm": "exact", "where": {"layers": [1]}}, {"algorithm": "uniform", "params": {"T": 1}})";
  const SweepConfig all = config_of(folder, of_layers);
  const auto first = of_layer(all, "0", 0);
  REQUIRE(first);
  REQUIRE(first->entries.size() == 1);
  CHECK(first->entries.front().algorithm->id == "uniform");
  const auto second = of_layer(all, "0", 1);
  REQUIRE(second);
  CHECK(second->entries.size() == 2);
  CHECK_FALSE(second->entries.front().where.layers);
  CHECK(second->wheres.front().second == Selection());

  const SweepConfig some =
      config_of(folder, entry("exact", ""), R"("select": {"layers": [2, 3], "sequences": ["0"]})");
  CHECK_FALSE(of_layer(some, "0", 1));
  CHECK_FALSE(of_layer(some, "1", 2));
  REQUIRE(of_layer(some, "0", 2));
  CHECK(of_layer(some, "0", 2)->select == Selection());
  CHECK_FALSE(
      of_layer(config_of(folder, R"({"algorithm": "exact", "where": {"layers": [1]}})"), "0", 0));
}

TEST_CASE("sweeps that need more than a layer are refused, all errors at once") {
  const SweepFolder folder;
  require_layer_by_layer(config_of(
      folder, entry("adakv", R"("budget": 16)") + ", " + entry("pyramidkv", R"("budget": 16)")));
  const auto messages = folder.messages([&] {
    require_layer_by_layer(config_of(
        folder, entry("cake", R"("budget": 16)") + ", " + entry("given", R"("file": "a.h5")"),
        R"("output": {"rows": true})"));
  });
  REQUIRE(messages.size() == 3);
  CHECK(messages[0].find("quick.json: /algorithms/0: cake decides for all layers") == 0);
  CHECK(messages[1].find("quick.json: /algorithms/1: given replays a cache file") == 0);
  CHECK(messages[2].find("quick.json: /output: ") == 0);
  for (const std::string& message : messages) {
    CHECK(message.find("; save the dump (save=) and run this sweep on it") != std::string::npos);
  }
}

}  // namespace layer_journals_test
}  // namespace kvbench::test
