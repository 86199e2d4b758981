// Ratios with denominator zero: 0/0 is 0, anything else is left out and counted.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace undefined_rows_test {

CellResult holding_last_token(const Stream& stream, Index prompt) {
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    if (row >= 0) sketch.add_exact(row, row + 1);
  });
  return replay_one(stream, prompt, algorithm, Params{});
}

TEST_CASE("all values zero: every relative error is 0, no row undefined") {
  const auto owned = make_stream({.tokens = 10, .d = 3, .dv = 2, .kind = StreamKind::kZeroValues});
  const CellResult result = holding_last_token(owned->stream, 5);
  CHECK(*result.metrics["errors.relative_frobenius_error"] == 0.0);
  CHECK(*result.metrics["errors.relative_spectral_error"] == 0.0);
  CHECK(*result.metrics["errors.relative_max_error"] == 0.0);
  CHECK(*result.metrics["errors.relative_l2.max"] == 0.0);
  CHECK(*result.metrics["errors.relative_l2_posclamp_mean"] == 0.0);
  CHECK(*result.metrics["errors.epsilon_spectral.max"] == 0.0);
  CHECK(*result.metrics["errors.cosine_distance.max"] == 0.0);
  CHECK(*result.metrics["errors.normalizer_error.max"] > 0.0);
  CHECK(result.undefined_rows == 0);
}

TEST_CASE("exact output zero, answer not: the row is left out and counted") {
  // Values 1 and -1 under equal logits cancel to exactly 0 at row 1; row 2 has a = 1/3.
  const auto owned = stream_of({{0}, {0}, {0}}, {{1}, {-1}, {1}}, {{{0}, {0}, {0}}});
  const CellResult result = holding_last_token(owned->stream, 1);
  CHECK(result.undefined_rows == 1);
  REQUIRE(result.metrics["errors.relative_l2.mean"]);
  // Row 2 alone: |1 - 1/3| / (1/3) = 2.
  CHECK(*result.metrics["errors.relative_l2.mean"] == doctest::Approx(2.0));
  CHECK(*result.metrics["errors.relative_l2.median"] == doctest::Approx(2.0));
  // One vector zero: 1. The other row: both point the same way.
  CHECK(*result.metrics["errors.cosine_distance.max"] == 1.0);
  CHECK(*result.metrics["errors.cosine_distance.mean"] == doctest::Approx(0.5));
  // The posclamp metric divides by 1e-8 at row 1: 1e8, and is defined.
  CHECK(*result.metrics["errors.relative_l2_posclamp_mean"] == doctest::Approx((1e8 + 2.0) / 2));
}

TEST_CASE("a metric with no row left is absent") {
  const auto owned = stream_of({{0}, {0}}, {{1}, {-1}}, {{{0}, {0}}});
  const CellResult result = holding_last_token(owned->stream, 1);
  CHECK(!result.metrics["errors.relative_l2.mean"]);
  CHECK(!result.metrics["errors.relative_frobenius_error"]);
  CHECK(!result.metrics["errors.relative_spectral_error"]);
  CHECK(!result.metrics["errors.relative_max_error"]);
  REQUIRE(result.metrics["errors.epsilon_spectral.mean"]);
  CHECK(result.undefined_rows == 1);
}

TEST_CASE(
    "answers that a rule clamps are counted per row and query head, and only where there is one") {
  const auto owned = make_stream({.tokens = 10, .d = 3, .dv = 2, .heads_per_kv = 3});
  const auto clamped = [&](const std::vector<double>& low, const std::vector<double>& high) {
    const AlgorithmDescription algorithm = scripted([&](Index row, Sketch& sketch) {
      if (sketch.size() == 0) sketch.add_exact(0, row + 1);
      sketch.answer_rule = std::make_shared<const AnswerRule>(AnswerRule{0.0, low, high});
    });
    return replay_one(owned->stream, 6, algorithm, Params{}).metrics["counters.clamped_answers"];
  };
  CHECK(clamped({90, -90}, {91, 90}) == 12.0);
  CHECK(clamped({-90, -90}, {90, 90}) == 0.0);
  CHECK(!clamped({}, {}));
}

TEST_CASE("an empty sketch answers zero and is counted per row and query head") {
  const auto owned = make_stream({.tokens = 10, .d = 3, .dv = 2, .heads_per_kv = 3});
  const AlgorithmDescription algorithm = scripted([](Index, Sketch&) {});
  const CellResult result = replay_one(owned->stream, 6, algorithm, Params{});
  CHECK(*result.metrics["counters.empty_denominator"] == 12.0);
  CHECK(*result.metrics["errors.relative_frobenius_error"] == doctest::Approx(1.0));
  CHECK(*result.metrics["errors.relative_l2.mean"] == doctest::Approx(1.0));
  CHECK(*result.metrics["errors.cosine_distance.mean"] == 1.0);
  CHECK(*result.metrics["errors.normalizer_error.mean"] == 1.0);
  CHECK(*result.metrics["mass.kept.max"] == 0.0);
  CHECK(!result.metrics["errors.kl_divergence.mean"]);
  CHECK(result.undefined_rows == 12);
}

TEST_CASE("a metric that overflows is null and named, and the others have their value") {
  // The row's own key is at -1000 from the first one: of the exact sum e^0 the sketch has e^1000
  // instead once the keys are exchanged, so that N^ and tau exceed a double while z is finite.
  const auto owned = stream_of({{0}, {0}}, {{2}, {1}}, {{{1}, {1}}});
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    if (row < 1) return;
    sketch.clear();
    sketch.own_keys = {{1000.0}, {1000.0}};
    for (std::int32_t token = 0; token < 2; ++token) {
      SketchRow own = SketchRow::exact(token);
      own.own_key = token;
      own.w_num = token == 0 ? 3.0 : 1.0;
      own.w_den = own.w_num;
      sketch.add(own);
    }
  });
  const CellResult result = replay_one(owned->stream, 1, algorithm, Params{});
  // z = (3 * 2 + 1) / 4, a = 3 / 2.
  CHECK(*result.metrics["errors.relative_l2.mean"] == doctest::Approx(0.25 / 1.5));
  CHECK(*result.metrics["errors.relative_frobenius_error"] == doctest::Approx(0.25 / 1.5));
  std::map<std::string, Index> named;
  for (const Overflow& each : result.overflows) named[each.path] = each.rows;
  CHECK(named == std::map<std::string, Index>{{"errors.numerator_error", 1},
                                              {"errors.normalizer_error", 1},
                                              {"mass.numerator", 1},
                                              {"mass.denominator", 1}});
  for (const auto& [path, rows] : named) CHECK(!result.metrics[path + ".mean"]);
}

TEST_CASE("sums that fit are exact although their shift does not") {
  // e^800 e^-600 = e^200 is the sum of weights, whose own logit and weight are no doubles together.
  const auto owned = stream_of({{0}, {0}}, {{2}, {1}}, {{{1}, {1}}});
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    if (row < 1) return;
    sketch.clear();
    sketch.own_keys = {{800.0}};
    SketchRow own = SketchRow::exact(0);
    own.own_key = 0;
    own.w_num = own.w_den = std::exp(-600.0);
    sketch.add(own);
  });
  const CellResult result = replay_one(owned->stream, 1, algorithm, Params{});
  CHECK(result.overflows.empty());
  CHECK(*result.metrics["mass.denominator.mean"] == doctest::Approx(std::exp(200.0) / 2.0));
  CHECK(*result.metrics["errors.relative_l2.mean"] == doctest::Approx(0.5 / 1.5));
}

TEST_CASE("values of any size have the same relative errors") {
  const auto made = [](double scale) {
    auto owned = make_stream({.tokens = 12, .d = 3, .dv = 4, .heads_per_kv = 2, .query_size = 2});
    for (double& value : owned->values) value *= scale;
    return owned;
  };
  const CellResult expected = holding_last_token(made(1.0)->stream, 6);
  for (const double scale : {0x1p-900, 0x1p-530, 0x1p-400, 0x1p500, 0x1p520}) {
    CAPTURE(scale);
    const auto owned = made(scale);
    const CellResult result = holding_last_token(owned->stream, 6);
    CHECK(result.overflows.empty());
    CHECK(result.undefined_rows == expected.undefined_rows);
    for (std::size_t i = 0; i < metric_numbers().size(); ++i) {
      const std::string& path = metric_numbers()[i].path;
      if (path.starts_with("errors.relative_l2_posclamp")) continue;  // its 1e-8 is a size
      CAPTURE(path);
      REQUIRE(result.metrics.at(i).has_value() == expected.metrics.at(i).has_value());
      if (expected.metrics.at(i)) {
        CHECK(*result.metrics.at(i) == doctest::Approx(*expected.metrics.at(i)).epsilon(1e-11));
      }
      CHECK(result.trivial->zero.at(i).has_value() == expected.trivial->zero.at(i).has_value());
      if (expected.trivial->zero.at(i)) {
        CHECK(*result.trivial->zero.at(i) ==
              doctest::Approx(*expected.trivial->zero.at(i)).epsilon(1e-11));
      }
    }
  }
}

}  // namespace undefined_rows_test
}  // namespace kvbench::test
