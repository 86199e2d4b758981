#include "check/baseline.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "check/made_cells.hpp"
#include "results/read_results.hpp"

namespace kvbench::test {
namespace baseline_test {

struct Folder {
  std::filesystem::path path;
  std::string bounds_path;

  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "kvbench-check-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
    std::filesystem::create_directory(path / "bounds");
    std::filesystem::create_directory(path / "baselines");
    bounds_path = (path / "bounds/b.json").string();
  }
  ~Folder() { std::filesystem::remove_all(path); }

  static std::string bound(const std::string& more = "") {
    return R"({"name": "n", "where": {"algorithm": "uniform"}, "baseline": "../baselines/x.json",
               "metric": "errors.relative_l2.mean", "relative_tolerance": 0.02)" +
           more + "}";
  }
  std::vector<std::pair<std::string, Index>> freeze_as(const std::string& bounds,
                                                       const Json& results) const {
    const BoundsFile file = made_bounds(bounds, bounds_path);
    return write_baselines(file, CheckedResults(file, results, "r.json"));
  }
  void freeze(const std::vector<MadeCell>& cells) const { freeze_as(bound(), made_results(cells)); }
  BoundOutcome check(const std::vector<MadeCell>& cells, const std::string& more = "") const {
    return outcome_of(bound(more), cells, bounds_path);
  }
};

TEST_CASE_FIXTURE(Folder, "a value within the tolerance of its baseline holds, on either side") {
  freeze({{.error = 0.1}, {.seed = 1, .error = 0.2}, {.algorithm = "other"}});
  CHECK(check({{.error = 0.1}, {.seed = 1, .error = 0.2}}).held());
  CHECK(check({{.error = 0.1019}, {.seed = 1, .error = 0.1961}}).held());
  const BoundOutcome above = check({{.error = 0.1021}, {.seed = 1, .error = 0.2}});
  REQUIRE(above.violations.size() == 1);
  CHECK(above.violations[0].value == 0.1021);
  CHECK(above.violations[0].allowed == 0.1);
  CHECK(check({{.error = 0.0979}, {.seed = 1, .error = 0.2}}).violations.size() == 1);
  CHECK(above.evidence["largest_relative_difference"].get<double>() == doctest::Approx(0.021));
}

TEST_CASE_FIXTURE(Folder, "a baseline of zero allows zero, or an absolute tolerance") {
  freeze({{.error = 0.0}});
  CHECK(check({{.error = 0.0}}).held());
  CHECK(!check({{.error = 1e-12}}).held());
  CHECK(check({{.error = 1e-12}}, R"(, "absolute_tolerance": 1e-9)").held());
}

TEST_CASE_FIXTURE(Folder, "the device is not part of what is compared, everything else is") {
  freeze({{.device = "cpu"}});
  CHECK(check({{.device = "cuda"}}).held());
  // One cell without its baseline and one baseline without its cell.
  CHECK(check({{.layer = 1}}).violations.size() == 2);
  CHECK(check({{.params = {{"T", 3}}}}).violations.size() == 2);
}

TEST_CASE_FIXTURE(Folder, "a missing counterpart is a violation on either side") {
  freeze({{}, {.seed = 1}});
  const BoundOutcome gone = check({{}});
  REQUIRE(gone.violations.size() == 1);
  CHECK(gone.violations[0].reason.find("../baselines/x.json") != std::string::npos);
  CHECK(gone.violations[0].cell["seed"] == 1);
  const BoundOutcome added = check({{}, {.seed = 1}, {.seed = 2}});
  REQUIRE(added.violations.size() == 1);
  CHECK(added.violations[0].reason == "../baselines/x.json has no such cell");
}

TEST_CASE_FIXTURE(Folder, "a cell that failed or is skipped now was a number before") {
  freeze({{}, {.seed = 1}});
  CHECK(check({{}, {.seed = 1, .status = "failed"}}).violations.size() == 1);
  const BoundOutcome skipped = check({{}, {.seed = 1, .status = "skipped"}});
  REQUIRE(skipped.violations.size() == 1);
  CHECK(skipped.violations[0].reason == "is a number in ../baselines/x.json, null here");
}

TEST_CASE_FIXTURE(Folder, "null in both is not a difference, and alone holds nothing") {
  freeze({{}, {.seed = 1, .error = nullptr}});
  const BoundOutcome both = check({{}, {.seed = 1, .error = nullptr}});
  CHECK(both.held());
  CHECK(both.undefined.size() == 1);
  CHECK(check({{}, {.seed = 1}}).violations.size() == 1);
  freeze({{.error = nullptr}});
  CHECK(!check({{.error = nullptr}}).held());
}

TEST_CASE_FIXTURE(Folder, "a vacuous cell may differ from its baseline, and never holds") {
  freeze({{.vacuous = true}});
  CHECK(!check({{.vacuous = true}}).held());
  freeze({{}, {.seed = 1, .vacuous = true}});
  CHECK(check({{}, {.seed = 1, .vacuous = true}}).held());
  CHECK(check({{}, {.seed = 1, .error = 0.3, .vacuous = true}}).violations.size() == 1);
}

TEST_CASE_FIXTURE(Folder, "a baseline holds what is compared and nothing of the machine") {
  const auto written = freeze_as(bound() + R"(, {"name": "m", "where": {"seed": 1},
          "baseline": "../baselines/x.json", "metric": "memory.tokens_peak",
          "relative_tolerance": 0})",
                                 made_results({{}, {.seed = 1}, {.algorithm = "other"}}));
  REQUIRE(written.size() == 1);
  CHECK(written[0].second == 2);
  const Json file = read_results(written[0].first);
  CHECK(!file.contains("provenance"));
  CHECK(!file.contains("dumps"));
  std::vector<std::string> names;
  for (const auto& [name, value] : file["cells"][1].items()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"id", "status", "key", "label", "errors", "memory"});
  CHECK(file["cells"][1]["errors"] == Json{{"relative_l2", {{"mean", 0.1}}}});
  CHECK(!file["cells"][0].contains("memory"));
}

TEST_CASE_FIXTURE(Folder, "what may not become a baseline") {
  const auto refused = [&](const std::string& bounds, const Json& results) {
    return messages_of([&] { freeze_as(bounds, results); });
  };
  CHECK(refused(bound(), made_results({{.status = "failed"}})).at(0).find("failed and cannot") !=
        std::string::npos);
  CHECK(refused(bound(), made_results({{.algorithm = "other"}})).at(0).find("selects no cell") !=
        std::string::npos);
  Json incomplete = made_results({{}});
  incomplete["status"] = "incomplete";
  CHECK(refused(bound(), incomplete).at(0).find("is incomplete") != std::string::npos);
  CHECK(refused(R"({"name": "n", "metric": "memory.bytes", "at_most": 1})", made_results({{}}))
            .at(0)
            .find("no bound names a baseline") != std::string::npos);
  CHECK(!std::filesystem::exists(path / "baselines/x.json"));
}

TEST_CASE_FIXTURE(Folder, "a baseline that cannot be read is a fault of the bounds file") {
  const auto message = [&] { return messages_of([&] { check({{}}); }).at(0); };
  const std::string expected = bounds_path + ": /bounds/0/baseline: ";
  CHECK(message().rfind(expected, 0) == 0);
  std::ofstream(path / "baselines/x.json") << "{\"kind\": \"other\"}";
  CHECK(message().rfind(expected, 0) == 0);
}

}  // namespace baseline_test
}  // namespace kvbench::test
