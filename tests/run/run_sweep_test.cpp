#include "run/run_sweep.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "results/output_folder.hpp"
#include "run/execute.hpp"
#include "run/merge_folders.hpp"
#include "run/small_run.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace run_sweep_test {

namespace fs = std::filesystem;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Counts, and stops the run once so many cells are done.
class StoppingObserver : public CountingObserver {
 public:
  explicit StoppingObserver(std::size_t after) : after_(after) {}
  void note(const std::string& text) override { notes.push_back(text); }
  void warning(const std::string& text) override { warnings.push_back(text); }
  void opened(const Execution& execution, const std::string&) override {
    reused = execution.journal.reused_cells();
  }
  void cell_done() override {
    CountingObserver::cell_done();
    if (done == after_) stop = true;
  }
  void end() override { ++ended; }
  void finished(const Execution&, const RunOutcome&) override { ++written; }

  std::atomic<bool> stop{false};
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
  std::size_t reused = 0;
  int ended = 0;
  int written = 0;

 private:
  std::size_t after_;
};

constexpr std::size_t kNever = 1000;
const char* const kTwo =
    R"({"algorithm": "exact"}, {"algorithm": "window", "params": {"budget": 8}})";
const char* const kOther = R"({"algorithm": "window", "params": {"budget": 16}})";

// A dump of 2 layers with 2 KV heads, and runs over it: 8 cells of kTwo.
struct Sweeps {
  SweepFolder folder;
  RunDevice device;
  const std::vector<AlgorithmDescription>* table = &all_algorithms();

  Sweeps() { synthesize(small_synth(), folder.file("a.h5")); }

  RunRequest request(const std::string& algorithms = kTwo, const std::string& more = "") {
    const std::string rows = R"("evaluate": {"rows": {"last": 4}})";
    return {.sweep = parse_sweep(sweep(algorithms, more.empty() ? rows : rows + ", " + more),
                                 folder.file("quick.json"), {}, *table, ErrorPolicy::kKeep),
            .source = {.file = folder.file("quick.json")},
            .device = device,
            .out = folder.file("out")};
  }
  RunOutcome run(RunRequest request, StoppingObserver& observer) const {
    const PlannedRun planned = plan_run(request, observer);
    return run_sweep(request, planned, observer, observer.stop);
  }
  RunOutcome run(RunRequest request) const {
    StoppingObserver observer(kNever);
    return run(std::move(request), observer);
  }
  // Without what varies from run to run.
  Json records() const {
    Json results = Json::parse(content(folder.file("out/results.json")));
    for (Json& cell : results.at("cells")) cell.erase("timing");
    return {results.at("cells"), results.at("summary")};
  }
};

TEST_CASE_FIXTURE(Sweeps, "a run that was stopped goes on where it ended, to the same results") {
  CHECK(run(request()).state == RunOutcome::State::kDone);
  const Json whole = records();
  RunRequest anew = request();
  anew.fresh = true;
  StoppingObserver stopping(3);
  const RunOutcome stopped = run(anew, stopping);
  CHECK(stopped.state == RunOutcome::State::kIncomplete);
  CHECK(stopping.ended == 1);
  CHECK(stopping.written == 1);
  const std::size_t done = stopped.counts.ok;
  CHECK(done >= 3);
  REQUIRE(done < 8);
  CHECK(stopped.remaining.missing == 8 - done);

  StoppingObserver rest(kNever);
  CHECK(run(request(), rest).state == RunOutcome::State::kDone);
  CHECK(rest.reused == done);
  CHECK(rest.begun == std::vector<std::size_t>{8 - done});
  CHECK(records() == whole);

  StoppingObserver nothing(kNever);
  CHECK(run(request(), nothing).state == RunOutcome::State::kDone);
  CHECK(nothing.begun == std::vector<std::size_t>{0});
}

TEST_CASE_FIXTURE(Sweeps, "fresh discards finished cells, per-row values and results") {
  const std::string rows = R"("output": {"rows": true, "caches": true})";
  run(request(kTwo, rows));
  CHECK(fs::exists(folder.file("out/results.rows.h5")));
  CHECK(!fs::is_empty(folder.file("out/caches")));
  RunRequest anew = request(kOther);
  anew.fresh = true;
  StoppingObserver observer(kNever);
  CHECK(run(anew, observer).counts.ok == 4);
  CHECK(observer.reused == 0);
  CHECK(!fs::exists(folder.file("out/results.rows.h5")));
  CHECK(Json::parse(content(folder.file("out/results.json"))).at("cells").size() == 4);
}

TEST_CASE_FIXTURE(Sweeps, "a folder belongs to one sweep, unless the run adds to it") {
  run(request());
  const std::string before = content(folder.file("out/results.json"));
  CHECK_THROWS_WITH_AS(run(request(kOther)), doctest::Contains("8 finished cells of another sweep"),
                       InputError);
  CHECK(content(folder.file("out/results.json")) == before);
  RunRequest adding = request(kOther);
  adding.add = true;
  StoppingObserver observer(kNever);
  CHECK(run(adding, observer).counts.ok == 4);
  REQUIRE(observer.notes.size() == 1);
  const std::string name =
      Json::parse(before).at("plan").at("hash").get<std::string>().substr(0, 8);
  CHECK(observer.notes[0].find("results-" + name + ".json") != std::string::npos);
  CHECK(content(folder.file("out/results-" + name + ".json")) == before);
}

TEST_CASE_FIXTURE(Sweeps, "a folder is locked while a run works, and free after it") {
  run(request());
  const std::string journal = content(folder.file("out/journal.jsonl"));
  {
    const auto lock = lock_run_folder(folder.file("out"), false);
    for (const bool fresh : {false, true}) {
      RunRequest second = request();
      second.fresh = fresh;
      CHECK_THROWS_AS(run(second), InputError);
    }
  }
  CHECK(content(folder.file("out/journal.jsonl")) == journal);
  struct Locking : StoppingObserver {
    using StoppingObserver::StoppingObserver;
    void at(const std::string&) override {
      CHECK_THROWS_AS(lock_run_folder(path, false), InputError);
      ++asked;
    }
    std::string path;
    int asked = 0;
  } locking(kNever);
  locking.path = folder.file("out");
  RunRequest anew = request();
  anew.fresh = true;
  CHECK(run(anew, locking).state == RunOutcome::State::kDone);
  CHECK(locking.asked == 4);
  CHECK(lock_run_folder(folder.file("out"), false) != nullptr);
}

TEST_CASE_FIXTURE(Sweeps, "failed cells are an outcome, computed again if the request says so") {
  std::vector<AlgorithmDescription> failing = all_algorithms();
  for (AlgorithmDescription& each : failing) {
    if (each.id == "window") {
      each.create = [](const Params&, const CellContext&) -> std::unique_ptr<Algorithm> {
        throw CellError("planted");
      };
    }
  }
  table = &failing;
  const RunOutcome failed = run(request());
  CHECK(failed.state == RunOutcome::State::kFailedCells);
  CHECK(failed.counts.failed == 4);
  CHECK(failed.remaining.failed == 4);
  table = &all_algorithms();
  StoppingObserver kept(kNever);
  CHECK(run(request(), kept).state == RunOutcome::State::kFailedCells);
  CHECK(kept.begun == std::vector<std::size_t>{0});
  RunRequest again = request();
  again.retry_failed = true;
  CHECK(run(again).state == RunOutcome::State::kDone);
}

TEST_CASE_FIXTURE(Sweeps, "an error of the device ends the work, and finished cells are kept") {
  struct Failing : RunDevice {
    void throw_if_failed() const override { throw DeviceError("gone"); }
  } failing;
  std::vector<AlgorithmDescription> algorithms = all_algorithms();
  for (AlgorithmDescription& each : algorithms) {
    if (each.id == "window") {
      each.create = [](const Params&, const CellContext&) -> std::unique_ptr<Algorithm> {
        throw CellError("planted");
      };
    }
  }
  table = &algorithms;
  RunRequest request = this->request();
  RunRequest on_device{
      .sweep = request.sweep, .source = request.source, .device = failing, .out = request.out};
  StoppingObserver observer(kNever);
  const RunOutcome broken = run(on_device, observer);
  CHECK(broken.state == RunOutcome::State::kBroken);
  CHECK(observer.ended == 1);
  CHECK(observer.written == 0);
  CHECK_THROWS_WITH_AS(std::rethrow_exception(broken.error), "gone", DeviceError);
  CHECK(!fs::exists(broken.results));
  table = &all_algorithms();
  CHECK(run(this->request()).state == RunOutcome::State::kDone);
}

TEST_CASE_FIXTURE(Sweeps,
                  "a sweep from no file is written into the folder, and is the same sweep") {
  RunRequest written = request();
  written.source = {};
  const std::string hash = [&] {
    run(written);
    return Json::parse(content(folder.file("out/results.json"))).at("plan").at("hash").dump();
  }();
  const PlannedRun again = [&] {
    StoppingObserver observer(kNever);
    RunRequest request = this->request();
    request.sweep = read_sweep(folder.file("out/sweep.json"));
    return plan_run(request, observer);
  }();
  CHECK(Json(again.plan.hash).dump() == hash);
}

struct SilentMerge : MergeObserver {
  void notice(const std::string& text, const std::vector<std::string>&) override {
    notices.push_back(text);
  }
  void warning(const std::string& text) override { notices.push_back(text); }
  std::vector<std::string> notices;
};

TEST_CASE_FIXTURE(Sweeps, "folders of shards merge into the results of one run") {
  const std::string more = R"("output": {"rows": true})";
  run(request(kTwo, more));
  const Json whole = records();
  for (const char* shard : {"1/2", "2/2"}) {
    RunRequest part = request(kTwo, more);
    part.shard = shard;
    part.out = folder.file(std::string("part-") + shard[0]);
    const RunOutcome outcome = run(part);
    CHECK(outcome.state == RunOutcome::State::kDone);
    CHECK(!outcome.counts.complete());
  }
  fs::remove_all(folder.file("out"));
  SilentMerge observer;
  const MergeOutcome half = merge_folders(
      {.folders = {folder.file("part-1")}, .out = folder.file("out/results.json")}, observer);
  CHECK(!half.complete());
  CHECK(half.shards == 2);
  REQUIRE(half.missing.size() == 1);
  CHECK(half.missing[0].number == 2);
  const MergeOutcome both =
      merge_folders({.folders = {folder.file("part-1"), folder.file("part-2")},
                     .out = folder.file("out/results.json")},
                    observer);
  CHECK(both.complete());
  CHECK(both.folders == 2);
  CHECK(observer.notices.empty());
  CHECK(records() == whole);
}

}  // namespace run_sweep_test
}  // namespace kvbench::test
