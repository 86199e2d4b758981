// Every metric of a cell against its definition, over sketches of every kind.
#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/random_sketch.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace {

struct Compared {
  CellResult result;
  NaiveReport naive;
};

Compared compare(const Stream& stream, Index prompt, SketchKind kind, std::vector<Index> rows) {
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

void check(const Compared& compared, double tolerance) {
  for (const NamedPair& pair : paired_metrics(compared.result.errors, compared.result.mass,
                                              compared.naive.errors, compared.naive.mass)) {
    CAPTURE(std::string(pair.name));
    CHECK(std::isnan(pair.a) == std::isnan(pair.b));
    if (std::isnan(pair.b)) continue;
    CHECK(std::fabs(pair.a - pair.b) <= tolerance * (std::fabs(pair.b) + 1e-3));
  }
  CHECK(compared.result.empty_denominator == compared.naive.empty_denominator);
  CHECK(compared.result.undefined_rows == compared.naive.undefined_rows);
}

}  // namespace

TEST_CASE("every metric equals its definition for every kind of sketch") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 45, .d = 6, .dv = 5, .group = 3},
      {.tokens = 40, .d = 8, .dv = 43, .group = 1, .window = 9},
      {.tokens = 37, .d = 3, .dv = 3, .group = 8, .softcap = 5.0, .query_size = 3},
      {.tokens = 40, .d = 4, .dv = 1, .group = 2, .kind = StreamKind::kClustered},
      {.tokens = 30, .d = 4, .dv = 4, .kind = StreamKind::kEqualKeys},
      {.tokens = 30, .d = 4, .dv = 6, .kind = StreamKind::kSomeZeroValues}};
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
    const auto owned =
        make_stream({.tokens = 40, .d = 3, .dv = 4, .group = 2, .kind = StreamKind::kHugeLogits});
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
        // Answers of 1e-50 are zero as errors go, and have no direction left in doubles; answers of
        // 1e140 have no finite square, so that such a cell may only fail.
        if (vanishes) continue;
        if (largest > 1e140L) {
          CHECK_THROWS_WITH_AS(compare(owned->stream, 20, kind, {row}),
                               doctest::Contains("not finite"), std::runtime_error);
          continue;
        }
        check(compare(owned->stream, 20, kind, {row}), 1e-9);
        ++checked;
      }
      CHECK(checked >= (part < 1.0 ? 10 : 1));
    }
  }
}

TEST_CASE("the last-row metrics are those of row n - 1 and query head 0, and absent without it") {
  const auto owned = make_stream({.tokens = 20, .d = 4, .dv = 4, .group = 2});
  const auto with = compare(owned->stream, 10, SketchKind::kEviction, {12, 19});
  REQUIRE(with.result.errors.epsilon_spectral_last);
  CHECK(*with.result.errors.epsilon_spectral_last ==
        doctest::Approx(*with.naive.errors.epsilon_spectral_last).epsilon(1e-11));
  const auto without = compare(owned->stream, 10, SketchKind::kEviction, {12, 18});
  CHECK(!without.result.errors.epsilon_spectral_last);
  CHECK(!without.result.errors.epsilon_frobenius_last);
}

TEST_CASE("per-row values are the members of the distributions, query head by query head") {
  const auto owned = make_stream({.tokens = 24, .d = 4, .dv = 3, .group = 2});
  const std::vector<Index> rows = {12, 17, 23};
  const auto compared = compare(owned->stream, 12, SketchKind::kWeighted, rows);
  REQUIRE(compared.result.row_errors);
  const RowErrors& row_errors = *compared.result.row_errors;
  CHECK(row_errors.rows == rows);
  REQUIRE(row_errors.relative_l2.size() == 6);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto one = compare(owned->stream, 12, SketchKind::kWeighted, {rows[r]});
    // With two heads, mean and max of one row give both values.
    const auto both = [&](const std::vector<double>& v, const Distribution& d) {
      const double a = v[r];
      const double b = v[rows.size() + r];
      CHECK(std::max(a, b) == doctest::Approx(d.max).epsilon(1e-12));
      CHECK(0.5 * (a + b) == doctest::Approx(d.mean).epsilon(1e-12));
    };
    both(row_errors.relative_l2, *one.naive.errors.relative_l2);
    both(row_errors.epsilon_spectral, *one.naive.errors.epsilon_spectral);
    both(row_errors.epsilon_frobenius, *one.naive.errors.epsilon_frobenius);
    both(row_errors.numerator_error, *one.naive.errors.numerator_error);
    both(row_errors.normalizer_error, *one.naive.errors.normalizer_error);
    both(row_errors.kept_mass, *one.naive.mass.kept);
  }
  // [G][R]: the last row of head 0 is the one that stands alone in the record.
  CHECK(row_errors.epsilon_spectral[2] == *compared.result.errors.epsilon_spectral_last);
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
  CHECK(*result.errors.relative_frobenius_error == doctest::Approx(1.0));
  CHECK(*result.errors.relative_spectral_error == doctest::Approx(1.0));
  CHECK(*result.errors.relative_max_error == doctest::Approx(1.0));
  CHECK(result.errors.relative_l2->mean == doctest::Approx(1.0));
  CHECK(*result.errors.relative_l2_posclamp_mean == doctest::Approx(1.0));
  // ||z - a|| = sqrt 2, ||p|| = 1 / sqrt 2, ||V||_op = 2, ||V||_F = 2 sqrt 2.
  CHECK(*result.errors.epsilon_spectral_last == doctest::Approx(1.0));
  CHECK(*result.errors.epsilon_frobenius_last == doctest::Approx(1.0 / sqrt2));
  // N = (2, 2), N^ = (0, 2), ||e^x|| = sqrt 2.
  CHECK(result.errors.numerator_error->max == doctest::Approx(2.0 / (sqrt2 * 2.0)));
  CHECK(result.errors.normalizer_error->max == doctest::Approx(0.5));
  CHECK(result.errors.cosine_distance->max == doctest::Approx(1.0 - 1.0 / sqrt2));
  CHECK(result.errors.kl_divergence->max == doctest::Approx(std::log(2.0)));
  CHECK(result.mass.kept->max == doctest::Approx(0.5));
  CHECK(result.mass.numerator->max == doctest::Approx(0.5));
  CHECK(result.mass.denominator->max == doctest::Approx(0.5));
}

TEST_CASE("every metric of a record has one definition in the list of metrics") {
  std::vector<std::string> paths;
  for (const MetricDescription& metric : all_metrics()) {
    CHECK(!metric.definition.empty());
    paths.push_back(metric.path);
  }
  const auto listed = [&](const std::string& name) {
    for (const std::string& path : paths) {
      if (path.find(name) != std::string::npos) return true;
    }
    return false;
  };
  for (const char* name :
       {"relative_frobenius_error", "relative_spectral_error", "relative_max_error", "relative_l2",
        "relative_l2_posclamp_mean", "epsilon_spectral", "epsilon_frobenius", "numerator_error",
        "normalizer_error", "cosine_distance", "kl_divergence", "mass.kept", "mass.numerator",
        "mass.denominator"}) {
    CAPTURE(std::string(name));
    CHECK(listed(name));
  }
}

}  // namespace kvbench::test
