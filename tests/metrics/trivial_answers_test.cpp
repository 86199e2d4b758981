// The answers 0 and mean of the visible values, and kappa: by hand, and against their definitions.
#include "metrics/trivial_answers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/cpu_kernels.hpp"
#include "metrics/distribution.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace trivial_answers_test {

TrivialAnswers answers_of(const Stream& stream, const std::vector<Index>& rows) {
  return trivial_answers(stream, make_reference(cpu_kernels(), stream, rows));
}

// Every error of an answer that the naive report of a sketch defines; one that it does not define
// has a test of its own (every_metric_test.cpp).
std::set<std::string> defined_numbers() {
  const auto owned = make_stream({.tokens = 3, .d = 2, .dv = 2});
  Sketch sketch;
  sketch.add_exact(1, 3);
  const NaiveReport naive = naive_report(owned->stream, {2}, {sketch});
  std::set<std::string> paths;
  for (const std::size_t i : answer_numbers()) {
    const std::string& path = metric_numbers()[i].path;
    if (naive.numbers.count(path) != 0) paths.insert(path);
  }
  return paths;
}

bool near(double a, double b) { return std::fabs(a - b) <= 1e-11 * (std::fabs(b) + 1e-3); }

void check(const CellMetrics& answer, const NaiveReport& naive) {
  std::set<std::string> known;
  for (const NamedPair& pair : paired_metrics(answer, naive)) {
    CAPTURE(pair.path);
    known.insert(pair.path);
    CHECK(std::isnan(pair.a) == std::isnan(pair.b));
    if (!std::isnan(pair.b)) CHECK(near(pair.a, pair.b));
  }
  CHECK(known == defined_numbers());
}

void check(const Stream& stream, const std::vector<Index>& rows) {
  const TrivialAnswers found = answers_of(stream, rows);
  const NaiveTrivial naive = naive_trivial(stream, rows);
  check(found.zero, naive.zero);
  check(found.mean_value, naive.mean_value);
  REQUIRE(found.kappa.has_value() == !naive.kappa.empty());
  if (found.kappa) {
    const Distribution expected = distribution(naive.kappa);
    for (const DistributionNumber& each : kDistributionNumbers) {
      CHECK(near((*found.kappa).*each.number, expected.*each.number));
    }
  }
  REQUIRE(found.kappa_last.has_value() == naive.kappa_last.has_value());
  if (found.kappa_last) CHECK(near(*found.kappa_last, *naive.kappa_last));
}

TEST_CASE("the trivial answers and kappa are what their definitions say") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 45, .d = 6, .dv = 5, .heads_per_kv = 3},
      {.tokens = 40, .d = 8, .dv = 43, .heads_per_kv = 1, .window = 9},
      {.tokens = 37, .d = 3, .dv = 3, .heads_per_kv = 8, .softcap = 5.0, .query_size = 3},
      {.tokens = 30, .d = 4, .dv = 6, .kind = StreamKind::kSomeZeroValues},
      {.tokens = 40, .d = 4, .dv = 6, .heads_per_kv = 2, .sinks = true, .alibi = true},
      {.tokens = 40, .d = 4, .dv = 6, .heads_per_kv = 2, .chunk = 9},
      {.tokens = 40, .d = 4, .dv = 6, .heads_per_kv = 2, .causal = false}};
  for (const StreamSpec& spec : specs) {
    CAPTURE(spec.d);
    const auto owned = make_stream(spec);
    const Index n = spec.tokens;
    check(owned->stream, decode_rows(owned->stream, n / 2));
    check(owned->stream, {0, 3, n - 2});
    check(owned->stream, {n - 1});
  }
}

TEST_CASE("where all keys are equal, the mean value is the answer") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 4, .kind = StreamKind::kEqualKeys});
  const TrivialAnswers found = answers_of(owned->stream, {3, 17, 29});
  CHECK(found.mean_value["errors.relative_frobenius_error"].value() < 1e-14);
  CHECK(found.mean_value["errors.epsilon_spectral.max"].value() < 1e-14);
  CHECK(found.zero["errors.relative_l2.median"] == 1.0);
}

TEST_CASE("two tokens by hand") {
  // Values (3, 0) and (0, 4) with probabilities 3/4 and 1/4: a = (9/4, 1), the mean (3/2, 2).
  const auto owned =
      stream_of({{std::log(3.0)}, {0.0}}, {{3.0, 0.0}, {0.0, 4.0}}, {{{1.0}, {1.0}}});
  const TrivialAnswers found = answers_of(owned->stream, {1});
  const double a = std::sqrt(81.0 / 16.0 + 1.0);
  const double p = std::sqrt(10.0) / 4.0;
  const double away = std::sqrt(9.0 / 16.0 + 1.0);  // ||mean - a||
  const auto is = [](const MetricValue& value, double expected) {
    REQUIRE(value);
    CHECK(*value == doctest::Approx(expected).epsilon(1e-12));
  };
  is(found.zero["errors.relative_l2.mean"], 1.0);
  is(found.zero["errors.relative_frobenius_error"], 1.0);
  is(found.zero["errors.cosine_distance.mean"], 1.0);
  is(found.zero["errors.epsilon_spectral.last"], a / (p * 4.0));
  is(found.zero["errors.epsilon_frobenius.last"], a / (p * 5.0));
  is(found.mean_value["errors.relative_l2.mean"], away / a);
  is(found.mean_value["errors.epsilon_spectral.last"], away / (p * 4.0));
  is(found.mean_value["errors.epsilon_frobenius.max"], away / (p * 5.0));
  is(found.kappa_last, p * 4.0 / a);
  is(found.least_last.at("errors.epsilon_spectral"), away / (p * 4.0));
  REQUIRE(found.kappa);
  CHECK(found.kappa->median == *found.kappa_last);
}

TEST_CASE(
    "the last row of several query heads has the largest, and a promise the least, in any order") {
  // Head 0 sees both tokens alike, head 1 only the first, up to e^-40: of values 1 and -1/2 the
  // outputs are 1/4 and 1, ||p|| is 1/sqrt 2 and 1, ||V|| is sqrt 5 / 2.
  const double op = std::sqrt(1.25);
  const Rows even = {{0.0}, {0.0}};
  const Rows first = {{0.0}, {40.0}};
  for (const auto& queries : {std::vector<Rows>{even, first}, std::vector<Rows>{first, even}}) {
    const auto owned = stream_of({{1.0}, {0.0}}, {{1.0}, {-0.5}}, queries);
    const TrivialAnswers found = answers_of(owned->stream, {1});
    CHECK(*found.zero["errors.epsilon_spectral.last"] == doctest::Approx(1.0 / op));
    CHECK(*found.mean_value["errors.epsilon_spectral.last"] == doctest::Approx(0.75 / op));
    CHECK(*found.kappa_last == doctest::Approx(op * std::sqrt(0.5) / 0.25));
    CHECK(found.least_last.at("errors.epsilon_spectral") == 0.0);  // the mean is head 0's answer
  }
}

TEST_CASE("without the last row there is no last; without values nothing is above 0") {
  const auto owned = make_stream({.tokens = 20, .d = 4, .dv = 4, .heads_per_kv = 2});
  const TrivialAnswers found = answers_of(owned->stream, {12, 18});
  CHECK(!found.kappa_last);
  CHECK(found.least_last.empty());
  CHECK(found.zero["errors.epsilon_spectral.mean"]);
  std::fill(owned->values.begin(), owned->values.end(), 0.0);
  const TrivialAnswers nothing = answers_of(owned->stream, {12, 19});
  CHECK(nothing.least_last.at("errors.epsilon_spectral") == 0.0);
  CHECK(nothing.kappa_last == 0.0);
}

TEST_CASE("a cell has the trivial answers of its stream, whatever its method answers") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 3, .heads_per_kv = 2});
  const std::vector<Index> rows = {12, 17, 23};
  const TrivialAnswers expected = answers_of(owned->stream, rows);
  const AlgorithmDescription empty = scripted([](Index, Sketch&) {});
  const CellResult cell = replay_one(owned->stream, 12, empty, Params{}, 0, rows);
  REQUIRE(cell.trivial);
  // A sketch without rows answers 0.
  for (const std::size_t i : answer_numbers()) {
    CAPTURE(metric_numbers()[i].path);
    CHECK(cell.metrics.at(i) == expected.zero.at(i));
    CHECK(cell.trivial->zero.at(i) == expected.zero.at(i));
    CHECK(cell.trivial->mean_value.at(i) == expected.mean_value.at(i));
  }
}

}  // namespace trivial_answers_test
}  // namespace kvbench::test
