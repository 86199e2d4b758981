// Bounds that rest on a test: failure rates and pairs, at the very counts where they turn red.
#include <doctest/doctest.h>

#include <cmath>

#include "check/made_cells.hpp"

namespace kvbench::test {
namespace statistical_bounds_test {

const char* kRate = R"({"name": "n", "metric": "errors.epsilon_spectral.last", "limit": 0.5,
                        "failure_rate": 0.01, "false_alarm": 1e-6})";

// `seeds` cells of one group, the first `failures` of them above 0.5.
std::vector<MadeCell> group(int layer, int seeds, int failures) {
  std::vector<MadeCell> cells;
  for (int seed = 0; seed < seeds; ++seed) {
    cells.push_back({.layer = layer, .seed = seed, .error = seed < failures ? 0.6 : 0.1});
  }
  return cells;
}

std::vector<MadeCell> operator+(std::vector<MadeCell> a, const std::vector<MadeCell>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_CASE("a failure rate turns red at the ninth failure of 100, the fifteenth of 300") {
  CHECK(outcome_of(kRate, group(0, 100, 8)).held());
  CHECK(!outcome_of(kRate, group(0, 100, 9)).held());
  CHECK(outcome_of(kRate, group(0, 300, 14)).held());
  const BoundOutcome red = outcome_of(kRate, group(0, 300, 15));
  REQUIRE(red.violations.size() == 1);
  CHECK(*red.violations[0].value > 0.01);
  CHECK(red.violations[0].allowed == 0.01);
  CHECK(red.violations[0].cell["layer"] == 0);
  CHECK(red.evidence["by_group"][0]["failures"] == 15);
}

TEST_CASE("each group is tested by itself, and more groups ask for more evidence") {
  // 9 of 100 has probability 7.6e-7: red alone, not as one of two groups.
  CHECK(outcome_of(kRate, group(0, 100, 9) + group(1, 100, 0)).held());
  CHECK(!outcome_of(kRate, group(0, 100, 10) + group(1, 100, 0)).held());
  // Failures of different groups are never added up: 4 times 8 of 100 would be 32 of 400.
  const BoundOutcome four =
      outcome_of(kRate, group(0, 100, 8) + group(1, 100, 8) + group(2, 100, 8) + group(3, 100, 8));
  CHECK(four.held());
  CHECK(four.evidence["groups"] == 4);
  CHECK(four.evidence["alpha_per_group"] == 0.25e-6);
}

TEST_CASE("parameters, KV heads and dumps make groups; devices and seeds do not") {
  const BoundOutcome outcome = outcome_of(kRate, {{},
                                                  {.seed = 1},
                                                  {.seed = 2, .device = "cuda"},
                                                  {.params = {{"T", 2}}},
                                                  {.kv_head = 1},
                                                  {.dump = "f2"}});
  CHECK(outcome.evidence["groups"] == 4);
}

TEST_CASE("vacuous cells do not count as seeds of a group; too few seeds are pointed out") {
  std::vector<MadeCell> cells = group(0, 100, 9);
  for (MadeCell& cell : cells) cell.vacuous = cell.error == 0.6;
  const BoundOutcome outcome = outcome_of(kRate, cells);
  CHECK(outcome.held());
  CHECK(outcome.tested == 91);
  CHECK(outcome.vacuous.size() == 9);
  CHECK(outcome.evidence["groups_with_too_few_seeds_to_fail"] == 0);
  CHECK(outcome_of(kRate, group(0, 3, 3)).evidence["groups_with_too_few_seeds_to_fail"] == 1);
  for (MadeCell& cell : cells) cell.vacuous = true;
  CHECK(!outcome_of(kRate, cells).held());
}

TEST_CASE("a bound that holds whatever its seeds do is not held") {
  // 0.01^3 is not below 1e-6, 0.01^4 is.
  const BoundOutcome three = outcome_of(kRate, group(0, 3, 0));
  REQUIRE(three.violations.size() == 1);
  CHECK(three.violations[0].reason.starts_with("3 seeds are too few"));
  CHECK(three.violations[0].reason.find("at least 4 seeds") != std::string::npos);
  CHECK(outcome_of(kRate, group(0, 4, 0)).held());
  CHECK(!outcome_of(kRate, group(0, 4, 4)).held());
  CHECK(outcome_of(kRate, group(0, 100, 0) + group(1, 3, 0)).held());  // one stream can
}

std::string beats(const std::string& more = "", const std::string& by = R"("seed")") {
  return R"({"name": "n", "where": {"algorithm": "a"}, "than": {"algorithm": "b"},
             "metric": "errors.relative_l2.mean", "test": "sign", "false_alarm": 1e-6,
             "paired_by": [)" +
         by + "]" + more + "}";
}

// Pairs of a and b by seed: a is `ratio` times b, or higher by a half in the first `losses`.
std::vector<MadeCell> pairs(int count, int losses, double ratio = 0.5) {
  std::vector<MadeCell> cells;
  for (int seed = 0; seed < count; ++seed) {
    const double b = 0.1 + 0.01 * seed;
    cells.push_back({.algorithm = "a", .seed = seed, .error = seed < losses ? 1.5 * b : ratio * b});
    cells.push_back({.algorithm = "b", .seed = seed, .error = b});
  }
  return cells;
}

TEST_CASE("the sign test is exact: 20 of 20 pairs hold at 1e-6, 19 of 19 do not") {
  const BoundOutcome held = outcome_of(beats(), pairs(20, 0));
  CHECK(held.held());
  CHECK(held.evidence["p_value"].get<double>() == doctest::Approx(std::ldexp(1.0, -20)));
  CHECK(held.evidence["lower"] == 20);
  CHECK(held.evidence["median_ratio"].get<double>() == doctest::Approx(0.5));
  CHECK(held.evidence["median_log_ratio"].get<double>() == doctest::Approx(std::log(0.5)));
  const BoundOutcome few = outcome_of(beats(), pairs(19, 0));
  REQUIRE(few.violations.size() == 1);
  CHECK(few.violations[0].reason.rfind("19 pairs are too few", 0) == 0);
  // P[Binomial(30, 1/2) >= 27] = 4526 / 2^30 = 4.2e-6, >= 28: 466 / 2^30 = 4.3e-7.
  const BoundOutcome lost = outcome_of(beats(), pairs(30, 3));
  CHECK(!lost.held());
  CHECK(lost.evidence["p_value"].get<double>() == doctest::Approx(std::ldexp(4526.0, -30)));
  CHECK(outcome_of(beats(), pairs(30, 2)).held());
}

TEST_CASE("being lower in no pair, or equal in all, is not a win") {
  CHECK(!outcome_of(beats(), pairs(100, 100)).held());
  const BoundOutcome equal = outcome_of(beats(), pairs(100, 0, 1.0));
  CHECK(!equal.held());
  CHECK(equal.evidence["equal"] == 100);
  CHECK(equal.evidence["p_value"] == 1.0);
}

TEST_CASE("the effect's size may be gated too") {
  CHECK(outcome_of(beats(R"(, "median_ratio_at_most": 0.6)"), pairs(40, 0)).held());
  const BoundOutcome weak = outcome_of(beats(R"(, "median_ratio_at_most": 0.4)"), pairs(40, 0));
  REQUIRE(weak.violations.size() == 1);
  CHECK(weak.violations[0].reason == "the median ratio to algorithm = b is 0.5");
}

TEST_CASE("a pair without its counterpart, or with several, is a violation") {
  std::vector<MadeCell> cells = pairs(40, 0);
  cells.pop_back();
  const BoundOutcome missing = outcome_of(beats(), cells);
  REQUIRE(missing.violations.size() == 1);
  CHECK(missing.violations[0].cell["seed"] == 39);
  CHECK(missing.violations[0].reason ==
        R"(no cell of algorithm = b has {"seed":39,"dump":"f1","sequence":"s"})");

  cells = pairs(40, 0) + std::vector<MadeCell>{{.algorithm = "b", .seed = 3, .params = {{"T", 2}}}};
  const BoundOutcome several = outcome_of(beats(), cells);
  REQUIRE(several.violations.size() == 1);
  CHECK(
      several.violations[0].reason ==
      R"(2 cells of algorithm = b have {"seed":3,"dump":"f1","sequence":"s"}; add to paired_by or )"
      "to than what tells them apart: params.T");
  CHECK(outcome_of(beats("", R"("seed", "params.T")"), cells).held());

  cells = pairs(40, 0);
  cells.back().status = "failed";
  CHECK(outcome_of(beats(), cells).violations.size() == 1);

  cells = pairs(40, 0);
  for (MadeCell& cell : cells) {
    if (cell.algorithm == "b") cell.algorithm = "c";
  }
  const BoundOutcome none = outcome_of(beats(), cells);
  REQUIRE(none.violations.size() == 1);
  CHECK(none.violations[0].reason == "nothing to compare with: no cell has algorithm = b");
}

TEST_CASE("pairs never cross dumps, unless the bound says so") {
  std::vector<MadeCell> cells = pairs(40, 0);
  for (MadeCell& cell : cells) {
    if (cell.algorithm == "b") cell.dump = "f2";
  }
  CHECK(outcome_of(beats(), cells).violations.size() == 40);
  const std::string bound =
      R"({"name": "n", "where": {"algorithm": "a"}, "than": {"algorithm": "b", "dump": "f2"},
          "metric": "errors.relative_l2.mean", "paired_by": ["seed"]})";
  CHECK(outcome_of(bound, cells).held());
}

}  // namespace statistical_bounds_test
}  // namespace kvbench::test
