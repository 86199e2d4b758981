// Ratios with denominator zero: 0/0 is 0, anything else is left out and counted.
#include <doctest/doctest.h>

#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace {

CellResult holding_last_token(const Stream& stream, Index prompt) {
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    if (row >= 0) sketch.add_exact(row, row + 1);
  });
  return replay_one(stream, prompt, algorithm, Params{});
}

}  // namespace

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

}  // namespace kvbench::test
