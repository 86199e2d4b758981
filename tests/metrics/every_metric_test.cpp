// Every metric of a cell against its definition, over sketches of every kind.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>

#include "kernels/kernels.hpp"
#include "metrics/error_accumulator.hpp"
#include "metrics/reference.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/random_sketch.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace every_metric_test {

struct Compared {
  CellResult result;
  NaiveReport naive;
};

Compared compare(const Stream& stream, Index prompt, SketchKind kind,
                 const std::vector<Index>& rows) {
  const auto sketch_at = [&stream, kind](Index row) {
    return random_sketch(stream, row, kind, 21);
  };
  const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
    if (row >= 0) sketch = sketch_at(row);
  });
  std::vector<Sketch> sketches;
  for (const Index row : rows) sketches.push_back(sketch_at(row));
  return {replay_one(stream, prompt, algorithm, Params{}, 0, rows),
          naive_report(stream, rows, sketches)};
}

// `clamped`: allowed besides of relative_l2_posclamp_mean, which divides by 1e-8 where an output
// has no positive element, so that the last bit of an answer of size 1 is 1e-8 of it.
void check(const Compared& compared, double tolerance, double clamped = 0.0) {
  for (const NamedPair& pair : paired_metrics(compared.result.metrics, compared.naive)) {
    CAPTURE(pair.path);
    CHECK(std::isnan(pair.a) == std::isnan(pair.b));
    if (std::isnan(pair.b)) continue;
    const double besides = pair.path == "errors.relative_l2_posclamp_mean" ? clamped : 0.0;
    CHECK(std::fabs(pair.a - pair.b) <= tolerance * (std::fabs(pair.b) + 1e-3) + besides);
  }
  CHECK(undefined_rows_agree(compared.result.undefined_rows, compared.naive));
}

TEST_CASE("every metric equals its definition for every kind of sketch") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 45, .d = 6, .dv = 5, .heads_per_kv = 3},
      {.tokens = 40, .d = 8, .dv = 43, .heads_per_kv = 1, .window = 9},
      {.tokens = 37, .d = 3, .dv = 3, .heads_per_kv = 8, .softcap = 5.0, .query_size = 3},
      {.tokens = 40, .d = 4, .dv = 1, .heads_per_kv = 2, .kind = StreamKind::kClustered},
      {.tokens = 30, .d = 4, .dv = 4, .kind = StreamKind::kEqualKeys},
      {.tokens = 30, .d = 4, .dv = 6, .kind = StreamKind::kSomeZeroValues},
      {.tokens = 40, .d = 5, .dv = 4, .heads_per_kv = 3, .sinks = true},
      {.tokens = 40,
       .d = 5,
       .dv = 4,
       .heads_per_kv = 2,
       .softcap = 4,
       .sinks = true,
       .alibi = true},
      {.tokens = 40, .d = 5, .dv = 4, .heads_per_kv = 2, .chunk = 7}};
  for (const StreamSpec& spec : specs) {
    CAPTURE(spec.d);
    const auto owned = make_stream(spec);
    const Index n = spec.tokens;
    for (const SketchKind kind : kAllSketchKinds) {
      CAPTURE(static_cast<int>(kind));
      check(compare(owned->stream, n / 2, kind, decode_rows(owned->stream, n / 2)), 1e-11);
      check(compare(owned->stream, 0, kind, {0, 3, n - 2}), 1e-11);
      check(compare(owned->stream, n - 1, kind, {n - 1}), 1e-11);
    }
  }
}

TEST_CASE("every metric survives logits of 300 and of 1e4") {
  for (const double part : {0.03, 1.0}) {
    const auto owned = make_stream(
        {.tokens = 40, .d = 3, .dv = 4, .heads_per_kv = 2, .kind = StreamKind::kHugeLogits});
    for (auto& q : owned->queries) {
      for (double& x : q) x *= part;
    }
    for (const SketchKind kind : kAllSketchKinds) {
      CAPTURE(part);
      CAPTURE(static_cast<int>(kind));
      int checked = 0;
      for (Index row = 20; row < 40; ++row) {
        const Sketch sketch = random_sketch(owned->stream, row, kind, 21);
        Real largest = 0;
        bool vanishes = false;
        for (int g = 0; g < 2; ++g) {
          Real own = 0;
          for (const Real z : naive_answer(owned->stream, g, row, sketch).z) {
            own = std::max(own, std::fabs(z));
          }
          largest = std::max(largest, own);
          vanishes = vanishes || (own > 0 && own < 1e-50L);
        }
        // Answers of 1e-50 are zero as errors go, and have no direction left in doubles; metrics of
        // answers of 1e140 may overflow, which undefined_rows_test.cpp tries.
        if (vanishes || largest > 1e140L) continue;
        check(compare(owned->stream, 20, kind, {row}), 1e-9, 2e-8);
        ++checked;
      }
      CHECK(checked >= (part < 1.0 ? 10 : 1));
    }
  }
}

TEST_CASE(
    "every metric keeps its digits where a sink leaves none to squares of the tokens' shares") {
  for (const double gap : {355.0, 365.0, 400.0, 600.0}) {
    const auto owned =
        make_stream({.tokens = 40, .d = 5, .dv = 4, .heads_per_kv = 2, .window = 9, .sinks = true});
    owned->stream.sinks = {gap, gap + 5};
    CAPTURE(gap);
    check(compare(owned->stream, 20, SketchKind::kEviction, {22, 30, 39}), 1e-9, 2e-8);
  }
}

TEST_CASE(
    "the last-row metrics are the largest over query heads at row n - 1, and absent without it") {
  const auto owned = make_stream({.tokens = 20, .d = 4, .dv = 4, .heads_per_kv = 2});
  const auto with = compare(owned->stream, 10, SketchKind::kEviction, {12, 19});
  REQUIRE(with.result.metrics["errors.epsilon_spectral.last"]);
  CHECK(*with.result.metrics["errors.epsilon_spectral.last"] ==
        doctest::Approx(*with.naive.numbers.at("errors.epsilon_spectral.last")).epsilon(1e-11));
  const auto without = compare(owned->stream, 10, SketchKind::kEviction, {12, 18});
  CHECK(!without.result.metrics["errors.epsilon_spectral.last"]);
  CHECK(!without.result.metrics["errors.epsilon_frobenius.last"]);
}

TEST_CASE("per-row values are the members of the distributions, query head by query head") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 3, .heads_per_kv = 2});
  const std::vector<Index> rows = {12, 17, 23};
  const auto compared = compare(owned->stream, 12, SketchKind::kWeighted, rows);
  REQUIRE(compared.result.row_values);
  const RowValues& row_values = *compared.result.row_values;
  CHECK(row_values.rows == rows);
  CHECK(row_values.columns.size() == row_columns().size());
  std::size_t compared_values = 0;
  for (const Metric& metric : all_metrics()) {
    if (metric.column.empty()) continue;
    CAPTURE(metric.path);
    const std::vector<double>& values = row_values[metric.column];
    REQUIRE(values.size() == 6);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto one = compare(owned->stream, 12, SketchKind::kWeighted, {rows[r]});
      const auto& alone = one.naive.numbers;
      if (alone.count(metric.path + ".max") == 0) continue;
      // With two heads, mean and max of one row give both values.
      const double a = values[r];
      const double b = values[rows.size() + r];
      CHECK(std::max(a, b) == doctest::Approx(*alone.at(metric.path + ".max")).epsilon(1e-12));
      CHECK(0.5 * (a + b) == doctest::Approx(*alone.at(metric.path + ".mean")).epsilon(1e-12));
      ++compared_values;
    }
  }
  CHECK(compared_values >= 6 * rows.size());
  // [G][R]: the last row of head 0 is the one with a number of its own in the record.
  CHECK(row_values["epsilon_spectral"][2] ==
        *compared.result.metrics["errors.epsilon_spectral.last"]);
}

TEST_CASE("a worked case: dropping one of two equally attended tokens") {
  // Both logits 0, values (2, 0) and (0, 2): a = (1, 1), z = (0, 2).
  const auto owned = stream_of({{0}, {0}}, {{2, 0}, {0, 2}}, {{{1}, {1}}});
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    sketch.add_exact(row, row + 1);
  });
  const CellResult result = replay_one(owned->stream, 1, algorithm, Params{});
  const double sqrt2 = std::sqrt(2.0);
  CHECK(*result.metrics["errors.relative_frobenius_error"] == doctest::Approx(1.0));
  CHECK(*result.metrics["errors.relative_spectral_error"] == doctest::Approx(1.0));
  CHECK(*result.metrics["errors.relative_max_error"] == doctest::Approx(1.0));
  CHECK(*result.metrics["errors.relative_l2.mean"] == doctest::Approx(1.0));
  CHECK(*result.metrics["errors.relative_l2_posclamp_mean"] == doctest::Approx(1.0));
  // ||z - a|| = sqrt 2, ||p|| = 1 / sqrt 2, ||V||_op = 2, ||V||_F = 2 sqrt 2.
  CHECK(*result.metrics["errors.epsilon_spectral.last"] == doctest::Approx(1.0));
  CHECK(*result.metrics["errors.epsilon_frobenius.last"] == doctest::Approx(1.0 / sqrt2));
  // N = (2, 2), N^ = (0, 2), ||e^x|| = sqrt 2.
  CHECK(*result.metrics["errors.numerator_error.max"] == doctest::Approx(2.0 / (sqrt2 * 2.0)));
  CHECK(*result.metrics["errors.normalizer_error.max"] == doctest::Approx(0.5));
  CHECK(*result.metrics["errors.cosine_distance.max"] == doctest::Approx(1.0 - 1.0 / sqrt2));
  CHECK(*result.metrics["errors.kl_divergence.max"] == doctest::Approx(std::log(2.0)));
  CHECK(*result.metrics["mass.kept.max"] == doctest::Approx(0.5));
  CHECK(*result.metrics["mass.numerator.max"] == doctest::Approx(0.5));
  CHECK(*result.metrics["mass.denominator.max"] == doctest::Approx(0.5));
}

TEST_CASE("every row of the table is whole, and no two of them share a name") {
  std::set<std::string> paths;
  std::set<std::string> columns;
  for (const Metric& metric : all_metrics()) {
    CAPTURE(metric.path);
    CHECK(std::set<std::string>{"errors", "mass", "counters"}.count(metric.section()) == 1);
    CHECK(metric.name().find('.') == std::string::npos);
    CHECK(!metric.definition.empty());
    const bool of_row = metric.of_row != nullptr;
    const bool of_all = metric.of_all != nullptr;
    CHECK(of_row != of_all);
    CHECK(paths.insert(metric.path).second);
    if (metric.column.empty()) continue;
    CHECK(of_row);
    CHECK(metric.column != "rows");
    CHECK(columns.insert(metric.column).second);
  }
  CHECK(paths.count("errors.relative_l2") == 1);
}

TEST_CASE("errors of what a codec gives back are those measured, and null without a codec") {
  const auto owned = make_stream({.tokens = 8, .d = 2, .dv = 2});
  const Reference reference = make_reference(cpu_kernels(), owned->stream, {6, 7});
  Answer answer;
  answer.answer = answer.numerator = {0.0, 0.0};
  ErrorAccumulator plain(owned->stream, reference);
  ErrorAccumulator stored(owned->stream, reference);
  ErrorAccumulator partly(owned->stream, reference);  // row 6 reads no token
  for (const Index r : {0, 1}) {
    answer.is_stored = false;
    answer.score_error.reset();
    plain.add(r, 0, answer);
    answer.is_stored = true;
    if (r == 0) partly.add(r, 0, answer);
    answer.score_error = r == 0 ? 1.0 : 3.0;
    stored.add(r, 0, answer);
    if (r == 1) partly.add(r, 0, answer);
  }
  CHECK(partly.metrics()["errors.score_error.mean"] == 3.0);
  const CellMetrics with = stored.metrics({.keys = 0.25, .values = 0.5});
  CHECK(with["errors.score_error.mean"] == 2.0);
  CHECK(with["errors.score_error.max"] == 3.0);
  CHECK(with["errors.key_error"] == 0.25);
  CHECK(with["errors.value_error"] == 0.5);
  for (const char* path : {"errors.score_error.mean", "errors.key_error", "errors.value_error"}) {
    CHECK_FALSE(plain.metrics()[path]);
  }
}

TEST_CASE("every metric has a test: a definition of its own, or a file that names it") {
  // The definitions are tried by the cases above, on every kind of sketch.
  const char* source = std::getenv("KVBENCH_SOURCE");
  const std::string root = source != nullptr ? source : KVBENCH_SOURCE_DIR;
  std::string tests;
  for (const auto& file : std::filesystem::directory_iterator(root + "/tests/metrics")) {
    std::ifstream in(file.path());
    tests.append(std::istreambuf_iterator<char>(in), {});
  }
  const auto owned = make_stream({.tokens = 8, .d = 2, .dv = 2});
  const NaiveReport naive = compare(owned->stream, 4, SketchKind::kEviction, {5}).naive;
  for (const Metric& metric : all_metrics()) {
    CAPTURE(metric.path);
    const bool is_defined =
        naive.numbers.count(metric.path) != 0 || naive.numbers.count(metric.path + ".mean") != 0;
    CHECK((is_defined || tests.find('"' + metric.path) != std::string::npos));
  }
}

TEST_CASE("an answer that overflows fails the cell, a metric that overflows is null") {
  const auto replayed = [](const Rows& keys, const Rows& values, double w_num, double w_den) {
    const auto owned = stream_of(keys, values, {{{1}, {1}}});
    const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
      sketch.clear();
      sketch.add_exact(0, 1);
      if (row >= 0) sketch.set_weights(0, w_num, w_den);
    });
    return replay_one(owned->stream, 1, algorithm, Params{});
  };
  // p_0 = exp(-700) = 1e-304, and the answer is 1e10 times value 0: over ||a|| it overflows.
  const CellResult over_exact = replayed({{-700}, {0}}, {{1}, {0}}, 1e10, 1.0);
  CHECK(!over_exact.metrics["errors.relative_l2.mean"]);
  CHECK(over_exact.overflows.front().path == "errors.relative_frobenius_error");
  CHECK(*over_exact.metrics["errors.epsilon_spectral.mean"] == doctest::Approx(1e10));
  // N^ is 1e200 where N is 1, ||e^x|| is sqrt 2; its square is no double.
  const CellResult heavy = replayed({{0}, {0}}, {{1}, {0}}, 1e200, 1e200);
  CHECK(heavy.overflows.empty());
  CHECK(*heavy.metrics["errors.numerator_error.mean"] == doctest::Approx(1e200 / std::sqrt(2.0)));
  CHECK(*replayed({{0}, {0}}, {{1}, {0}}, 1e200, 1.0).metrics["errors.relative_l2.mean"] ==
        doctest::Approx(2e200));
  CHECK_THROWS_WITH_AS(replayed({{0}, {0}}, {{1e10}, {0}}, 1e300, 1.0),
                       "the answer is not finite at row 1, query head 0 of the group",
                       std::runtime_error);
  CHECK(replayed({{0}, {0}}, {{1}, {0}}, 1.0, 1.0).overflows.empty());
}

}  // namespace every_metric_test
}  // namespace kvbench::test
