#include "check/bounds.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "check/made_cells.hpp"

namespace kvbench::test {
namespace {

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

TEST_CASE("every fault of a bound names its place and its remedy") {
  struct Case {
    const char* bound;
    const char* message;  // behind "b.json: /bounds/0"
  };
  const Case cases[] = {
      {"3", ": must be an object with name, where, metric, "},
      {R"({"metric": "memory.bytes", "at_most": 1})",
       "/name: this key is missing; name the bound, its violations are listed under it"},
      {R"({"name": "", "metric": "memory.bytes", "at_most": 1})",
       "/name: must be a name in quotes, is \"\""},
      {R"({"name": "n", "at_most": 1})",
       "/metric: this key is missing; say which number of a cell"},
      {R"({"name": "n", "metric": 3, "at_most": 1})", "/metric: must be the path of a number"},
      {R"({"name": "n", "metric": "errors.relative_l2.maen", "at_most": 1})",
       "/metric: unknown metric errors.relative_l2.maen; did you mean errors.relative_l2.mean?"},
      {R"({"name": "n", "metric": "relative_l2.mean", "at_most": 1})",
       "/metric: paths start at the cell; did you mean errors.relative_l2.mean?"},
      {R"({"name": "n", "metric": "errors.relative_l2", "at_most": 1})",
       "/metric: is no number but several; choose one of errors.relative_l2.mean, "},
      {R"({"name": "n", "metric": "memory.bytes"})",
       ": says nothing that must hold; give one of limit, than, baseline, at_most, at_least"},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "limit": 2})",
       ": limit and at_most exclude each other; make a bound of each"},
      {R"({"name": "n", "metric": "memory.bytes", "at_moost": 1, "limit": 1})",
       "/at_moost: unknown key of a bound; did you mean at_most?"},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": "1"})",
       "/at_most: must be a number, is \"1\""},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "at_least": 2})",
       "/at_least: 2 is above at_most, 1; no cell can satisfy both"},
      {R"({"name": "n", "metric": "memory.bytes", "limit": "x"})",
       "/limit: must be a number or {\"param\": \"NAME\"}, is \"x\""},
      {R"({"name": "n", "metric": "memory.bytes", "limit": {"parm": "epsilon"}})",
       "/limit/parm: unknown key of limit; did you mean param?"},
      {R"({"name": "n", "metric": "memory.bytes", "limit": 1, "failure_rate": 0})",
       "/failure_rate: must be a number above 0 and below 1, is 0"},
      {R"({"name": "n", "metric": "memory.bytes", "limit": 1, "failure_rate": 0.1,
           "false_alarm": 1})",
       "/false_alarm: must be a number above 0 and below 1, is 1"},
      {R"({"name": "n", "metric": "memory.bytes", "limit": 1, "false_alarm": 0.1})",
       "/false_alarm: belongs to a statistical bound, with than or failure_rate; leave it out"},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "relative_tolerance": 0.1})",
       "/relative_tolerance: belongs to a bound with baseline, and this one has at_most; leave it "
       "out"},
      {R"({"name": "n", "metric": "memory.bytes", "baseline": "x.json"})",
       "/relative_tolerance: this key is missing; "},
      {R"({"name": "n", "metric": "memory.bytes", "baseline": "x.json", "relative_tolerance": -1})",
       "/relative_tolerance: must be a number of at least 0, is -1"},
      {R"({"name": "n", "metric": "memory.bytes", "baseline": 7, "relative_tolerance": 0})",
       "/baseline: must be the path of a results file, is 7"},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"}})",
       "/paired_by: this key is missing; list the fields in which both cells of a pair agree, "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"}, "paired_by": []})",
       "/paired_by: must be a list of fields, "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"},
           "paired_by": ["seed", "laier"]})",
       "/paired_by/1: unknown field laier of a cell; did you mean layer?"},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"},
           "paired_by": ["seed", "key.seed"]})",
       "/paired_by/1: seed is listed twice; keep one of them"},
      {R"({"name": "n", "metric": "memory.bytes", "than": {}, "paired_by": ["seed"]})",
       "/than: must name the cells to compare with, "},
      {R"({"name": "n", "metric": "memory.bytes", "than": {"algorithm": "x"},
           "paired_by": ["seed"], "test": "t"})",
       "/test: must be \"sign\", the one test there is, is \"t\""},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": ["uniform"]})",
       "/where: must be an object of fields and values, "},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"layers": [0]}})",
       "/where/layers: unknown field layers of a cell; did you mean layer?"},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"layer": [0, "1"]}})",
       "/where/layer/1: must be an integer, is \"1\""},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"sequence": 0}})",
       "/where/sequence: must be a name in quotes, is 0"},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "where": {"layer": []}})",
       "/where/layer: must not be an empty list"},
      {R"({"name": "n", "metric": "memory.bytes", "at_most": 1, "name": "m"})",
       "/name: this key is given twice in one object; keep one of them"},
  };
  for (const Case& one : cases) {
    CAPTURE(one.bound);
    const auto messages = messages_of([&] { made_bounds(one.bound); });
    REQUIRE(messages.size() >= 1);
    const std::string expected = std::string("b.json: /bounds/0") + one.message;
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
  CHECK(messages ==
        std::vector<std::string>{
            "b.json: /bonds: unknown key of a bounds file; did you mean bounds?",
            "b.json: /schema_version: must be 1, the version this program reads, is 2",
            "b.json: /bounds/1/name: \"n\" is the name of an earlier bound; choose another",
            "b.json: /bounds/2/metric: unknown metric memory.byte; did you mean memory.bytes?",
            "b.json: /bounds/2/where/hed: unknown field hed of a cell; there are params.NAME, "
            "algorithm, label, sequence, layer, kv_head, seed, tokens, prompt_tokens, rows, "
            "element_bytes, device, scope_layers, scope_kv_heads, dump"});
}

TEST_CASE("what is no bounds file at all") {
  CHECK(messages_of([] { parse_bounds("{]", "b.json"); }).at(0).rfind("b.json:1:2: not JSON", 0) ==
        0);
  CHECK(messages_of([] { parse_bounds("[]", "b.json"); }).at(0) ==
        "b.json: must be an object with schema_version, bounds, is []");
  CHECK(messages_of([] { parse_bounds(R"({"schema_version": 1})", "b.json"); }) ==
        std::vector<std::string>{"b.json: /bounds: this key is missing; list the bounds"});
  CHECK(messages_of([] { parse_bounds(R"({"schema_version": 1, "bounds": []})", "b.json"); }) ==
        std::vector<std::string>{"b.json: /bounds: must be a list with at least one bound, is []"});
  CHECK(messages_of([] { read_bounds("/nowhere/b.json"); }).at(0) ==
        "/nowhere/b.json: cannot read: No such file or directory; --bounds names a bounds file");
  CHECK(messages_of([] { read_bounds("/"); }).at(0) ==
        "/: is a folder; --bounds names a bounds file");
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

}  // namespace
}  // namespace kvbench::test
