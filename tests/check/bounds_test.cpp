// Bounds files that are right; wrong ones are in tests/cli/bad_inputs/bounds.json.
#include "check/bounds.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "check/made_cells.hpp"

namespace kvbench::test {
namespace bounds_test {

TEST_CASE("a bounds file with every kind of bound") {
  const BoundsFile file = parse_bounds(R"(
    { // comments are allowed
      "schema_version": 1,
      "bounds": [
        {"name": "a", "where": {"algorithm": "clustergen"}, "metric": "errors.epsilon_spectral.last",
         "limit": {"param": "epsilon"}, "failure_rate": 0.01, "false_alarm": 1e-5},
        {"name": "b", "metric": "errors.relative_l2.mean", "limit": 0.5},
        {"name": "c", "where": {"algorithm": "x", "params": {"T": [1, 2]}, "seed": null},
         "than": {"algorithm": "y", "key.layer": 3}, "paired_by": ["layer", "key.seed", "params.T"],
         "metric": "derived.covering_radius", "test": "sign", "median_ratio_at_most": 0.9},
        {"name": "d", "baseline": "../x/y.json", "metric": "memory.bytes",
         "relative_tolerance": 0.02},
        {"name": "e", "metric": "clusters.final", "at_most": 9, "at_least": -1}
      ] })",
                                       "folder/bounds/b.json");
  REQUIRE(file.bounds.size() == 5);
  const auto& rate = std::get<LimitRule>(file.bounds[0].rule);
  CHECK(file.bounds[0].kind() == "failure rate");
  CHECK(file.bounds[0].where.conditions[0].any_of == std::vector<Json>{"subgen"});
  CHECK(rate.param == "epsilon");
  CHECK(rate.failure_rate == 0.01);
  CHECK(rate.false_alarm == 1e-5);
  const auto& limit = std::get<LimitRule>(file.bounds[1].rule);
  CHECK(file.bounds[1].kind() == "limit");
  CHECK(limit.number == 0.5);
  CHECK(!limit.failure_rate);
  const auto& paired = std::get<PairedRule>(file.bounds[2].rule);
  CHECK(file.bounds[2].kind() == "paired");
  CHECK(describe(file.bounds[2].where) == "algorithm = x, params.T = 1 or 2, seed = null");
  CHECK(describe(paired.than) == "algorithm = y, layer = 3");
  CHECK(paired.paired_by.size() == 3);
  CHECK(paired.paired_by[1].name == "seed");
  CHECK(paired.false_alarm == 1e-6);
  const auto& baseline = std::get<BaselineRule>(file.bounds[3].rule);
  CHECK(file.bounds[3].kind() == "baseline");
  CHECK(baseline.found == "folder/x/y.json");
  const auto& range = std::get<RangeRule>(file.bounds[4].rule);
  CHECK(file.bounds[4].kind() == "range");
  CHECK(range.at_most == 9.0);
  CHECK(range.at_least == -1.0);
}

TEST_CASE("every shipped bounds file is valid and its baselines are there") {
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(KVBENCH_SOURCE_DIR "/configs/bounds")) {
    CAPTURE(file.path().string());
    ++files;
    for (const Bound& bound : read_bounds(file.path().string()).bounds) {
      const auto* rule = std::get_if<BaselineRule>(&bound.rule);
      if (rule != nullptr) CHECK(std::filesystem::is_regular_file(rule->found));
    }
  }
  CHECK(files >= 1);
}

}  // namespace bounds_test
}  // namespace kvbench::test
