#include "check/suggest.hpp"

#include <doctest/doctest.h>

#include "check/made_cells.hpp"

namespace kvbench::test {
namespace suggest_test {

using Cells = std::vector<MadeCell>;

BoundsSuggestion suggested(const Cells& first, const Cells& second,
                           const std::vector<std::string>& metrics = {"errors.relative_l2.mean"}) {
  BoundsSuggestion suggestion(metrics);
  for (const auto& cells : {first, second}) {
    for (std::size_t i = 0; i < cells.size(); ++i) suggestion.add(cells[i].json(), i, "r.json");
  }
  return suggestion;
}

double limit(const BoundsSuggestion& suggestion, std::size_t bound = 0) {
  return suggestion.bounds()["bounds"].at(bound).at("limit").get<double>();
}

MadeCell plain(double error, int head = 0) {
  return {.algorithm = "h2o",
          .kv_head = head,
          .seed = nullptr,
          .params = {{"budget", 8}},
          .error = error};
}

TEST_CASE("suggest: without seeds, room of ten times what the runs differ by") {
  // Relative difference 0.01 on head 0: 0.202 (1 + 0.1) = 0.2222.
  CHECK(limit(suggested({plain(0.2), plain(0.1, 1)}, {plain(0.202), plain(0.1, 1)})) == 0.223);
  // Equal runs: 0.2 (1 + 1e-6), in three digits upwards.
  CHECK(limit(suggested({plain(0.2)}, {plain(0.2)})) == 0.201);
  CHECK(limit(suggested({plain(0.0)}, {plain(0.0)})) == 1e-12);
}

TEST_CASE("suggest: with seeds, four standard deviations of the unit that varies most") {
  Cells cells;
  for (int seed = 0; seed < 3; ++seed) {
    cells.push_back({.seed = seed, .error = 0.1 * (seed + 1)});  // deviation 0.1
    cells.push_back({.kv_head = 1, .seed = seed, .error = 0.35});
  }
  CHECK(limit(suggested(cells, {})) == 0.751);  // 0.35 (1 + 1e-6) + 0.4
  CHECK(limit(suggested(cells, cells)) == 0.751);
}

TEST_CASE("suggest: the same draws twice are not two seeds") {
  const Cells cells = {{.seed = 0, .error = 0.1}, {.seed = 1, .error = 0.2}};
  const BoundsSuggestion suggestion = suggested(cells, cells);
  CHECK(suggestion.bounds()["bounds"].empty());
  REQUIRE(suggestion.left_out().size() == 1);
  CHECK(suggestion.left_out()[0].find("has 2 seeds of a unit, 3 are needed") != std::string::npos);
}

TEST_CASE("suggest: a null metric has no bound, a failed cell is left out") {
  MadeCell failed = plain(9.0);
  failed.status = "failed";
  CHECK(limit(suggested({plain(0.2)}, {failed})) == 0.201);
  MadeCell null = plain(0.0, 1);
  null.error = nullptr;
  CHECK(suggested({plain(0.2)}, {null}).bounds()["bounds"].empty());
}

TEST_CASE("suggest: both runs hold what is proposed, one setting and metric each") {
  Cells cells = {plain(0.2), plain(0.123456, 1)};
  MadeCell other = plain(0.4);
  other.params = {{"budget", Json::array({1, 2})}};  // a list is one value
  cells.push_back(other);
  const Json bounds =
      suggested(cells, cells, {"errors.relative_l2.mean", "memory.fraction"}).bounds();
  REQUIRE(bounds["bounds"].size() == 4);
  const BoundsFile file = parse_bounds(bounds.dump(), "b.json");
  const CheckReport report = check_bounds(file, made_results(cells), "r.json");
  CHECK(report.passed());
  for (const BoundOutcome& bound : report.bounds) CHECK(bound.tested > 0);
}

TEST_CASE("suggest: a setting in floats leaves room for the same one with a codec") {
  Json stored = plain(0.5).json();
  stored["key"]["storage"] = {{"keys", {{"codec", "int"}, {"bits", 4}}}};
  BoundsSuggestion suggestion({"errors.relative_l2.mean"});
  suggestion.add(plain(0.2).json(), 0, "r.json");
  suggestion.add(stored, 1, "r.json");
  CHECK(limit(suggestion, 0) == 0.501);
  CHECK(limit(suggestion, 1) == 0.501);
  CHECK(suggestion.bounds()["bounds"][1]["where"]["storage.keys.bits"] == 4);
}

TEST_CASE("suggest: what is not a record is refused") {
  BoundsSuggestion suggestion({"errors.relative_l2.mean"});
  CHECK_THROWS_AS(suggestion.add(Json::object(), 3, "r.json"), InputError);
}

}  // namespace suggest_test
}  // namespace kvbench::test
