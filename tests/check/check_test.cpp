#include "check/check.hpp"

#include <doctest/doctest.h>

#include "check/made_cells.hpp"

namespace kvbench::test {
namespace check_test {

const char* kLimit =
    R"({"name": "n", "where": {"algorithm": "uniform"}, "metric": "errors.relative_l2.mean",
        "limit": 0.5})";
const char* kRange =
    R"({"name": "n", "metric": "memory.tokens_peak", "at_least": 90, "at_most": 110})";

std::string only_reason(const BoundOutcome& outcome) {
  REQUIRE(outcome.violations.size() == 1);
  return outcome.violations[0].reason;
}

TEST_CASE("a limit holds for every cell, and equality holds") {
  const BoundOutcome held = outcome_of(kLimit, {{.error = 0.1}, {.seed = 1, .error = 0.5}});
  CHECK(held.held());
  CHECK(held.tested == 2);
  CHECK(held.evidence["largest"] == 0.5);
  const BoundOutcome red =
      outcome_of(kLimit, {{.error = 0.1}, {.layer = 4, .seed = 1, .error = 0.6}, {.seed = 2}});
  CHECK(only_reason(red) == "above the limit");
  CHECK(red.violations[0].value == 0.6);
  CHECK(red.violations[0].allowed == 0.5);
  CHECK(red.violations[0].cell["layer"] == 4);
  CHECK(red.violations[0].cell["seed"] == 1);
}

TEST_CASE("a parameter as limit: cells without it do not match") {
  const char* bound = R"({"name": "n", "metric": "errors.relative_l2.mean",
                          "limit": {"param": "epsilon"}})";
  const std::vector<MadeCell> cells = {
      {.params = {{"epsilon", 0.2}}, .error = 0.1},
      {.params = {{"T", 2}}, .error = 99.0},
      {.params = {{"epsilon", "auto"}}, .error = 99.0},
  };
  const BoundOutcome held = outcome_of(bound, cells);
  CHECK(held.held());
  CHECK(held.matched == 1);
  CHECK(only_reason(outcome_of(bound, {cells[1]})) ==
        "matches no cell: no such cell has a number as params.epsilon");
  CHECK(!outcome_of(bound, {{.params = {{"epsilon", 0.2}}, .error = 0.3}}).held());
}

TEST_CASE("a range holds at both ends") {
  CHECK(outcome_of(kRange, {{.tokens_peak = 90}, {.seed = 1, .tokens_peak = 110}}).held());
  CHECK(only_reason(outcome_of(kRange, {{.tokens_peak = 89}})) == "below at_least");
  CHECK(only_reason(outcome_of(kRange, {{.tokens_peak = 111}})) == "above at_most");
}

TEST_CASE("a bound that matches no cell is a violation that says why") {
  const std::vector<MadeCell> cells = {{}, {.layer = 1, .params = {{"T", 2}}}};
  const auto reason = [&](const std::string& where) {
    return only_reason(outcome_of(
        R"({"name": "n", "metric": "memory.tokens_peak", "at_most": 1000, "where": )" + where + "}",
        cells));
  };
  CHECK(reason(R"({"algorithm": "unifrom"})") ==
        "matches no cell: no cell has algorithm = unifrom; did you mean uniform?");
  CHECK(reason(R"({"layer": [7, 8]})") == "matches no cell: no cell has layer = 7 or 8");
  CHECK(reason(R"({"layer": 0, "params.T": 2})") ==
        "matches no cell: no cell has all of layer = 0, params.T = 2");
  CHECK(reason(R"({"params.t": 1})") == "matches no cell: no cell has params.t = 1");
  CHECK(only_reason(outcome_of(kRange, {})) == "matches no cell: the results have no cells");
}

TEST_CASE("where selects by value, by list, by parameter and by the dump's name") {
  const std::vector<MadeCell> cells = {
      {}, {.seed = 1}, {.layer = 1}, {.params = {{"T", 2.0}}}, {.dump = "f2"}};
  const auto matched = [&](const std::string& where) {
    return outcome_of(
               R"({"name": "n", "metric": "memory.tokens_peak", "at_most": 1000, "where": )" +
                   where + "}",
               cells)
        .matched;
  };
  CHECK(matched("{}") == 5);
  CHECK(matched(R"({"seed": 1})") == 1);
  CHECK(matched(R"({"seed": [0, 1], "layer": 0})") == 4);
  CHECK(matched(R"({"params.T": 2})") == 1);
  CHECK(matched(R"({"params": {"T": [1, 2]}})") == 5);
  CHECK(matched(R"({"key.params.T": 2})") == 1);
  CHECK(matched(R"({"dump": "a.h5"})") == 4);
  CHECK(matched(R"({"dump": "f2"})") == 1);
  CHECK(matched(R"({"label": "uniform"})") == 5);
}

TEST_CASE("a failed cell and a null metric are violations") {
  const BoundOutcome failed = outcome_of(kLimit, {{}, {.seed = 1, .status = "failed"}});
  CHECK(only_reason(failed) == "the cell failed: because");
  CHECK(only_reason(outcome_of(kLimit, {{}, {.seed = 1, .error = nullptr}})) ==
        "errors.relative_l2.mean is null");
}

TEST_CASE("a skipped cell is listed, and alone holds nothing") {
  const BoundOutcome beside = outcome_of(kLimit, {{}, {.seed = 1, .status = "skipped"}});
  CHECK(beside.held());
  REQUIRE(beside.skipped.size() == 1);
  CHECK(beside.skipped[0]["reason"] == "because");
  CHECK(only_reason(outcome_of(kLimit, {{.status = "skipped"}})) ==
        "no cell was tested: 0 vacuous, 1 skipped, 0 undefined");
}

TEST_CASE("a vacuous cell is listed and never counts as a bound that held") {
  for (const std::string& bound : {std::string(kLimit), std::string(kRange)}) {
    CAPTURE(bound);
    const BoundOutcome beside = outcome_of(bound, {{}, {.seed = 1, .vacuous = true}});
    CHECK(beside.held());
    CHECK(beside.tested == 1);
    CHECK(beside.vacuous.size() == 1);
    CHECK(only_reason(outcome_of(bound, {{.vacuous = true}})) ==
          "no cell was tested: 1 vacuous, 0 skipped, 0 undefined");
  }
  // Its theorem says nothing about it; its memory is still counted.
  CHECK(outcome_of(kLimit, {{}, {.seed = 1, .error = 9.0, .vacuous = true}}).held());
  CHECK(!outcome_of(kRange, {{}, {.seed = 1, .vacuous = true, .tokens_peak = 200}}).held());
}

constexpr const char* kTrivial =
    R"({"name": "n", "metric": "errors.epsilon_spectral.last", "below_trivial": 1})";

TEST_CASE("a cell must be below the better of the trivial answers, and as good as z = 0 fails") {
  const BoundOutcome good =
      outcome_of(kTrivial, {{.error = 0.1, .zero = 0.4, .mean_value = 0.2},
                            {.seed = 1, .error = 0.375, .zero = 0.5, .mean_value = 0.625}});
  CHECK(good.held());
  CHECK(good.kind == "trivial");
  CHECK(good.tested == 2);
  CHECK(good.evidence["largest_share_of_trivial"] == 0.75);
  for (const double error : {0.4, 0.5}) {  // as bad as z = 0, and worse
    const BoundOutcome bad =
        outcome_of(kTrivial, {{.error = error, .zero = 0.4, .mean_value = 0.7}});
    CHECK(only_reason(bad) == "not below what a trivial answer has");
    CHECK(bad.violations[0].value == error);
    CHECK(bad.violations[0].allowed == 0.4);
  }
  CHECK(!outcome_of(kTrivial, {{.error = 0.3, .zero = 0.4, .mean_value = 0.3}}).held());
}

TEST_CASE("below_trivial asks for a share of what the trivial answers have") {
  const std::string half =
      R"({"name": "n", "metric": "errors.epsilon_spectral.last", "below_trivial": 0.5})";
  CHECK(outcome_of(half, {{.error = 0.19, .zero = 0.4, .mean_value = 0.5}}).held());
  const BoundOutcome bad = outcome_of(half, {{.error = 0.2, .zero = 0.4, .mean_value = 0.5}});
  CHECK(!bad.held());
  CHECK(bad.violations[0].allowed == 0.2);
}

TEST_CASE("without trivial answers nothing is below them") {
  CHECK(only_reason(outcome_of(kTrivial, {{}})).rfind("has no trivial answers", 0) == 0);
  // The answer is exact where the output is 0, and so are the trivial ones.
  CHECK(!outcome_of(kTrivial, {{.error = 0.0, .zero = 0.0, .mean_value = 0.1}}).held());
  // One of them may be undefined.
  CHECK(outcome_of(kTrivial, {{.error = 0.1, .zero = 0.4}}).held());
}

TEST_CASE("below_trivial is of the errors that an answer has by itself") {
  const auto messages = messages_of([] {
    made_bounds(R"({"name": "n", "metric": "memory.bytes", "below_trivial": 1},
                   {"name": "m", "metric": "errors.normalizer_error.mean", "below_trivial": 1},
                   {"name": "o", "metric": "errors.relative_l2.mean", "below_trivial": 0})");
  });
  REQUIRE(messages.size() == 3);
  CHECK(messages[0].find("/bounds/0/metric: memory.bytes is not an error that trivial") !=
        std::string::npos);
  CHECK(messages[1].find("/bounds/1/metric: errors.normalizer_error.mean is not") !=
        std::string::npos);
  CHECK(messages[2].find("/bounds/2/below_trivial: must be a number above 0") != std::string::npos);
}

TEST_CASE("incomplete results do not pass") {
  Json results = made_results({{}});
  CHECK(check_bounds(made_bounds(kLimit), results, "r.json").passed());
  results["status"] = "incomplete";
  const CheckReport report = check_bounds(made_bounds(kLimit), results, "r.json");
  CHECK(!report.passed());
  CHECK(report.bounds[0].held());
}

TEST_CASE("a cell that is not a cell record is refused") {
  Json results = made_results({{}, {}});
  results["cells"][1].erase("key");
  CHECK(messages_of([&] { check_bounds(made_bounds(kLimit), results, "r.json"); })
            .at(0)
            .rfind("r.json: /cells/1: ", 0) == 0);
}

TEST_CASE("the report as JSON has every bound with its evidence and violations") {
  const CheckReport report =
      check_bounds(made_bounds(kLimit + std::string(", ") +
                               R"({"name": "m", "metric": "memory.tokens_peak", "at_most": 10})"),
                   made_results({{}}), "r.json");
  const Json json = report_json(report);
  CHECK(json["passed"] == false);
  CHECK(json["bounds"].size() == 2);
  CHECK(json["bounds"][0]["name"] == "n");
  CHECK(json["bounds"][0]["held"] == true);
  CHECK(json["bounds"][0]["evidence"]["largest"] == 0.1);
  CHECK(json["bounds"][1]["held"] == false);
  CHECK(json["bounds"][1]["violations"][0]["value"] == 100.0);
  CHECK(json["bounds"][1]["violations"][0]["allowed"] == 10.0);
  CHECK(json["bounds"][1]["violations"][0]["cell"]["id"] == "id-of-uniform");
}

// Results with cells and records of whole layers, whose errors these are.
Json with_layers(const std::vector<double>& errors) {
  Json results = made_results({{}, {.layer = 1}});
  results["layers"] = Json::array();
  for (std::size_t layer = 0; layer < errors.size(); ++layer) {
    Json record = MadeCell{.layer = static_cast<int>(layer)}.json();
    record["key"].erase("kv_head");
    record["errors"] = {{"relative_output_l2", {{"mean", errors[layer]}}}};
    results["layers"].push_back(record);
  }
  return results;
}

TEST_CASE("a bound of a layer's error is tested on the records of whole layers") {
  const auto outcome = [](const Json& results, const std::string& where = "{}") {
    const std::string bound =
        R"({"name": "n", "metric": "errors.relative_output_l2.mean", "limit": 0.2, "where": )" +
        where + "}";
    return check_bounds(made_bounds(bound), results, "r.json").bounds.at(0);
  };
  const BoundOutcome held = outcome(with_layers({0.1, 0.2, 0.15}));
  CHECK(held.held());
  CHECK(held.tested == 3);
  const BoundOutcome red = outcome(with_layers({0.1, 0.3}));
  CHECK(only_reason(red) == "above the limit");
  CHECK(red.violations[0].cell["layer"] == 1);
  CHECK(red.violations[0].cell["kv_head"].is_null());
  CHECK(outcome(with_layers({0.1, 0.3}), R"({"layer": 0})").held());
  CHECK(only_reason(outcome(with_layers({0.1}), R"({"kv_head": 0})")) ==
        "matches no cell: no cell has kv_head = 0");
  CHECK(only_reason(outcome(made_results({{}}))).find("output projection") != std::string::npos);
}

TEST_CASE("two records of one layer are refused") {
  Json results = with_layers({0.1, 0.2});
  results["layers"][1]["key"]["layer"] = 0;
  CHECK_THROWS_WITH_AS(check_bounds(made_bounds(kRange), results, "r.json"),
                       doctest::Contains("/layers/0 and /layers/1"), InputError);
}

TEST_CASE("the needed part of a cell gives the same verdict, and lacks the rest") {
  const BoundsFile bounds = made_bounds(R"(
    {"name": "limit", "metric": "errors.relative_l2.mean", "limit": {"param": "T"}},
    {"name": "trivial", "metric": "errors.epsilon_spectral.last", "below_trivial": 1},
    {"name": "memory", "metric": "memory.fraction", "at_most": 0.2})");
  const Json whole =
      made_results({{.error = 0.3, .zero = 1.0, .mean_value = 0.2},
                    {.kv_head = 1, .status = "failed"},
                    {.kv_head = 2, .error = nullptr},
                    {.kv_head = 3, .vacuous = true, .zero = 1.0, .mean_value = 0.9}});
  Json reduced = whole;
  for (Json& cell : reduced["cells"]) cell = needed_part(bounds, cell);
  CHECK(report_json(check_bounds(bounds, reduced, "r.json")) ==
        report_json(check_bounds(bounds, whole, "r.json")));
  CHECK(reduced["cells"][0]["memory"] == Json{{"fraction", 0.25}});
  CHECK(needed_part(bounds, Json(3)) == Json(3));
  CHECK(needed_part(BoundsFile{}, whole["cells"][0]).size() == 5);
}

}  // namespace check_test
}  // namespace kvbench::test
