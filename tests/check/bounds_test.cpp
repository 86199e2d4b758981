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

TEST_CASE("every fault of a bound is reported at its place") {
  struct Case {
    const char* bound;
    const char* place;  // below "b.json: /bounds/0"
  };
  const Case cases[] = {
      {"3", ": "},
      {R"({"metric": "memory.bytes", "at_most": 1})", "/name: "},
      {R"({"name": "", "metric": "memory.bytes", "at_most": 1})", "/name: "},
      {R"({"name": "n", "at_most": 1})", "/metric: "},
      {R"({"name": "n", "metric": 3, "at_most": 1})", "/metric: "},
      {R"({"name": "n", "metric": "errors.relative_l2.maen", "at_most": 1})", "/metric: "},
      {R"({"name": "n", "metric": "relative_l2.mean", "at_most": 1})", "/metric: "},
      {R"({"name": "n", "metric": "errors.relative_l2", "at_most": 1})", "/metric: "},
      {R"({"name": "n", "metric": "memory.bytes"})", ": "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "limit": 2})", ": "},
      {R"({"name": "n", "metric": "memory.bytes", "at_moost": 1, "limit": 1})", "/at_moost: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": "1"})", "/at_most: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "at_least": 2})", "/at_least: "},
      {R"({"name": "n", "metric": "memory.bytes", "limit": "x"})", "/limit: "},
      {R"({"name": "n", "metric": "memory.bytes", "limit": {"parm": "epsilon"}})", "/limit/parm: "},
      {R"({"name": "n", "metric": "memory.bytes", "limit": 1, "failure_rate": 0})",
       "/failure_rate: "},
      {R"({"name": "n", "metric": "memory.bytes", "limit": 1, "failure_rate": 0.1,
           "false_alarm": 1})",
       "/false_alarm: "},
      {R"({"name": "n", "metric": "memory.bytes", "limit": 1, "false_alarm": 0.1})",
       "/false_alarm: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "relative_tolerance": 0.1})",
       "/relative_tolerance: "},
      {R"({"name": "n", "metric": "memory.bytes", "baseline": "x.json"})", "/relative_tolerance: "},
      {R"({"name": "n", "metric": "memory.bytes", "baseline": "x.json", "relative_tolerance": -1})",
       "/relative_tolerance: "},
      {R"({"name": "n", "metric": "memory.bytes", "baseline": 7, "relative_tolerance": 0})",
       "/baseline: "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"}})", "/paired_by: "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"}, "paired_by": []})",
       "/paired_by: "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"},
           "paired_by": ["seed", "laier"]})",
       "/paired_by/1: "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"},
           "paired_by": ["seed", "key.seed"]})",
       "/paired_by/1: "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {}, "paired_by": ["seed"]})", "/than: "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"},
           "paired_by": ["seed"], "test": "t"})",
       "/test: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": ["uniform"]})",
       "/where: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"layers": [0]}})",
       "/where/layers: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"layer": [0, "1"]}})",
       "/where/layer/1: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"sequence": 0}})",
       "/where/sequence: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"layer": []}})",
       "/where/layer: "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "name": "m"})", "/name: "},
  };
  for (const Case& one : cases) {
    CAPTURE(one.bound);
    const auto messages = messages_of([&] { made_bounds(one.bound); });
    REQUIRE(messages.size() >= 1);
    const std::string expected = std::string("b.json: /bounds/0") + one.place;
    bool found = false;
    for (const std::string& message : messages) found = found || message.rfind(expected, 0) == 0;
    std::string all;
    for (const std::string& message : messages) all += message + "\n";
    CHECK_MESSAGE(found, "expected ", expected, " in ", all);
  }
}

TEST_CASE("all faults of a bounds file are reported together") {
  const auto messages = messages_of([] {
    parse_bounds(R"({"schema_version": 2, "bonds": [], "bounds": [
      {"name": "n", "metric": "memory.bytes", "at_most": 1},
      {"name": "n", "metric": "memory.bytes", "at_most": 2},
      {"name": "o", "metric": "memory.byte", "at_most": 3, "where": {"hed": 1}}]})",
                 "b.json");
  });
  const char* const places[] = {"/bonds", "/schema_version", "/bounds/1/name", "/bounds/2/metric",
                                "/bounds/2/where/hed"};
  REQUIRE(messages.size() == std::size(places));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    CHECK(messages[i].rfind(std::string("b.json: ") + places[i] + ": ", 0) == 0);
  }
}

TEST_CASE("what is not a bounds file at all") {
  CHECK(messages_of([] { parse_bounds("{]", "b.json"); }).at(0).rfind("b.json:1:2: ", 0) == 0);
  CHECK(messages_of([] { parse_bounds("[]", "b.json"); }).at(0).rfind("b.json: ", 0) == 0);
  for (const char* text : {R"({"schema_version": 1})", R"({"schema_version": 1, "bounds": []})"}) {
    const auto messages = messages_of([&] { parse_bounds(text, "b.json"); });
    REQUIRE(messages.size() == 1);
    CHECK(messages[0].rfind("b.json: /bounds: ", 0) == 0);
  }
  const std::string missing = messages_of([] { read_bounds("/nowhere/b.json"); }).at(0);
  CHECK(missing.rfind("/nowhere/b.json: ", 0) == 0);
  CHECK(missing.find("No such file or directory") != std::string::npos);
  CHECK(messages_of([] { read_bounds("/"); }).at(0).rfind("/: is a folder", 0) == 0);
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
