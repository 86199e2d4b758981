#include "verify/verify.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "run/run_sweep.hpp"
#include "sweep/read_sweep.hpp"
#include "sweep/sweep_folder.hpp"
#include "synth/synth.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace verify_test {

struct Silent : RunObserver {
  void begin(std::size_t cells) override { begun = cells; }
  void at(const std::string&) override {}
  void cell_done() override {}
  std::size_t begun = 0;
};

// Results of 12 cells: 2 layers with 2 KV heads, 3 settings.
struct Results {
  SweepFolder folder;
  RunDevice device;
  std::atomic<bool> stop{false};
  Silent observer;

  Results() {
    SynthOptions options;
    options.kind = "gaussian";
    options.tokens = 64;
    options.layers = 2;
    options.d = 8;
    options.dtype = "float64";
    synthesize(options, folder.file("a.h5"));
    RunRequest request{
        .sweep =
            parse_sweep(sweep(entry("exact", "") + ", " + entry("window", R"("budget": [8, 16])"),
                              R"("evaluate": {"rows": {"last": 4}})"),
                        folder.file("quick.json"), {}, all_algorithms(), ErrorPolicy::kKeep),
        .source = {.file = folder.file("quick.json")},
        .device = device,
        .out = folder.file("out")};
    const PlannedRun planned = plan_run(request, observer);
    REQUIRE(run_sweep(request, planned, observer, stop).state == RunOutcome::State::kDone);
  }

  std::string path() const { return folder.file("out/results.json"); }
  Json document() const {
    std::ifstream file(path());
    return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  void write(const Json& document) const { std::ofstream(path()) << document.dump(); }
  Verification verification(std::size_t sample = 20, std::uint32_t seed = 1) {
    return verify({.results = path(), .sample = sample, .seed = seed}, device, observer, stop);
  }
};

TEST_CASE_FIXTURE(Results,
                  "results of this program have the bits that they are computed to again") {
  const Verification all = verification();
  CHECK(all.agrees());
  CHECK(all.complete());
  CHECK(all.sample.ok == 12);
  CHECK(all.sample.eligible == 12);
  CHECK(all.verdict.computed == 12);
  CHECK(all.verdict.equal == 12);
  CHECK(all.tolerance.relative == 0.0);
  CHECK(all.summary.entries > 0);
}

TEST_CASE_FIXTURE(Results, "a sample has as many cells as are asked for, by the seed") {
  const Verification five = verification(5);
  CHECK(five.sample.cells.size() == 5);
  CHECK(observer.begun == 5);
  CHECK(five.verdict.computed == 5);
  CHECK(verification(5).sample.cells == five.sample.cells);
  bool differs = false;
  for (const std::uint32_t seed : {2U, 3U, 4U}) {
    differs = differs || verification(5, seed).sample.cells != five.sample.cells;
  }
  CHECK(differs);
}

TEST_CASE_FIXTURE(Results, "a number that changed in its last bit is found, in its cell alone") {
  Json changed = document();
  Json& cell = changed["cells"][6];
  Json& mean = cell["errors"]["relative_l2"]["mean"];
  REQUIRE(mean.get<double>() > 0.0);
  mean = std::nextafter(mean.get<double>(), 1.0);
  write(changed);
  const Verification found = verification();
  CHECK(!found.agrees());
  CHECK(found.verdict.equal == 11);
  REQUIRE(found.verdict.differences.size() == 1);
  CHECK(found.verdict.differences[0].what.path == "errors.relative_l2.mean");
  CHECK(found.verdict.differences[0].cell.at("id") == cell.at("id"));
}

TEST_CASE_FIXTURE(Results, "a cell under another's label is not one of the sweep") {
  Json changed = document();
  changed["cells"][6]["label"] = "mine";
  write(changed);
  const Verification found = verification();
  REQUIRE(!found.verdict.differences.empty());
  CHECK(found.verdict.differences[0].what.path == "key");
}

TEST_CASE_FIXTURE(Results, "a dump that the results are not of is refused by its fingerprint") {
  SynthOptions other;
  other.kind = "gaussian";
  other.tokens = 64;
  other.d = 8;
  other.seed = 99;
  synthesize(other, folder.file("b.h5"));
  CHECK_THROWS_WITH_AS(
      verify({.results = path(), .dumps = {folder.file("b.h5")}}, device, observer, stop),
      doctest::Contains("name the dump that it was made from"), InputError);
}

TEST_CASE_FIXTURE(Results, "what a stop leaves out is not verified") {
  stop = true;
  const Verification none = verification();
  CHECK(none.agrees());
  CHECK(!none.complete());
  CHECK(none.verdict.computed == 0);
}

}  // namespace verify_test
}  // namespace kvbench::test
