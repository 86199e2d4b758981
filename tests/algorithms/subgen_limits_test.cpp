// SubGen's limits (I7, I10): planted clusters, delta below and above every distance, exact sums.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "support/given.hpp"
#include "support/library_answer.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_rules.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"
#include "support/subgen_parts.hpp"

namespace kvbench::test {
namespace subgen_limits_test {

CellResult replay_subgen(const Stream& stream, Index prompt, const Given& given,
                         std::uint32_t seed = 0) {
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  return replay_one(stream, prompt, algorithm, params_for(algorithm, given), seed);
}

std::pair<double, double> distance_range(const Stream& stream) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0.0;
  for (Index i = 0; i < stream.shape.tokens; ++i) {
    for (Index j = 0; j < i; ++j) {
      const double distance = naive_distance(stream.keys, i, j);
      least = std::min(least, distance);
      most = std::max(most, distance);
    }
  }
  return {least, most};
}

// Largest number of clusters beyond m, over random streams of m balls of diameter `diameter`.
Index clusters_beyond(Index m, double diameter, double delta) {
  std::mt19937_64 rng(9);
  std::normal_distribution<double> normal;
  Index beyond = -m;
  for (int trial = 0; trial < 10; ++trial) {
    const auto owned = make_stream({.tokens = 120, .d = 6, .dv = 2});
    std::vector<double> centres(m * 6);
    for (double& x : centres) x = normal(rng);  // balls may well overlap
    for (Index j = 0; j < 120; ++j) {
      const Index ball = static_cast<Index>(rng() % static_cast<std::uint64_t>(m));
      double direction[6];
      double norm = 0.0;
      for (double& x : direction) {
        x = normal(rng);
        norm += x * x;
      }
      const double radius = 0.49999 * diameter * std::generate_canonical<double, 53>(rng);
      for (Index k = 0; k < 6; ++k) {
        owned->keys[j * 6 + k] = centres[ball * 6 + k] + radius * direction[k] / std::sqrt(norm);
      }
    }
    const CellResult result = replay_subgen(
        owned->stream, 60, {{"delta", Value{delta}}, {"t", count_of(2)}, {"s", count_of(2)}});
    REQUIRE(result.clusters);
    CHECK(result.clusters->final_count >= 1);
    beyond = std::max(beyond, result.clusters->final_count - m);
  }
  return beyond;
}

TEST_CASE("keys of m planted balls of diameter delta give at most m clusters") {
  for (const Index m : {1, 3, 8}) CHECK(clusters_beyond(m, 0.5, 0.5) <= 0);
}

TEST_CASE("planted balls turn red on a radius compared with half of delta") {
  for (const Index m : {1, 3, 8}) CHECK(clusters_beyond(m, 0.5, 0.25) > 0);
}

TEST_CASE(
    "one cluster when delta reaches every key, as many as distinct keys when it reaches none") {
  for (const StreamKind kind : {StreamKind::kGaussian, StreamKind::kClustered}) {
    const auto owned = make_stream({.tokens = 50, .d = 4, .dv = 2, .kind = kind});
    const auto [least, most] = distance_range(owned->stream);
    const auto clusters = [&](double delta) {
      return replay_subgen(owned->stream, 25,
                           {{"delta", Value{delta}}, {"t", count_of(1)}, {"s", count_of(1)}})
          .clusters->final_count;
    };
    CHECK(clusters(most) == 1);
    CHECK(clusters(0.999 * least) == 50);
    CHECK(clusters(0.0) == 50);
  }
  const auto repeated =
      make_stream({.tokens = 40, .d = 3, .dv = 2, .kind = StreamKind::kEqualKeys});
  CHECK(replay_subgen(repeated->stream, 20,
                      {{"delta", Value{0.0}}, {"t", count_of(1)}, {"s", count_of(1)}})
            .clusters->final_count == 1);
}

TEST_CASE("delta below every distance: the normaliser is exact") {
  const auto owned = make_stream({.tokens = 50, .d = 4, .dv = 6, .heads_per_kv = 2});
  const double delta = 0.999 * distance_range(owned->stream).first;
  for (const Index t : {1, 3}) {
    const CellResult result = replay_subgen(
        owned->stream, 20, {{"delta", Value{delta}}, {"t", count_of(t)}, {"s", count_of(4)}});
    CHECK(*result.metrics["errors.normalizer_error.max"] < 1e-13);
    CHECK(*result.metrics["mass.denominator.max"] == doctest::Approx(1.0).epsilon(1e-13));
    const CellResult both = replay_subgen(owned->stream, 20,
                                          {{"delta", Value{delta}},
                                           {"t", count_of(t)},
                                           {"s", count_of(4)},
                                           {"numerator", word_of("exact")}});
    CHECK(*both.metrics["errors.relative_l2.max"] < 1e-12);
  }
}

TEST_CASE("limits turn red just beyond them: one pair within delta, one key apart") {
  const auto owned = make_stream({.tokens = 50, .d = 4, .dv = 6, .heads_per_kv = 2});
  const double least = distance_range(owned->stream).first;
  const auto result = [&](const Stream& stream, double delta) {
    return replay_subgen(stream, 20,
                         {{"delta", Value{delta}}, {"t", count_of(1)}, {"s", count_of(4)}});
  };
  CHECK(result(owned->stream, least).clusters->final_count == 49);
  CHECK(*result(owned->stream, least).metrics["errors.normalizer_error.max"] > 1e-6);
  double reach = 0.0;  // distance from token 0, which opens a cluster
  for (Index j = 1; j < 50; ++j) {
    reach = std::max(reach, naive_distance(owned->stream.keys, 0, j));
  }
  CHECK(result(owned->stream, reach).clusters->final_count == 1);
  CHECK(result(owned->stream, 0.999 * reach).clusters->final_count == 2);
  const auto repeated =
      make_stream({.tokens = 40, .d = 4, .dv = 6, .kind = StreamKind::kEqualKeys});
  repeated->keys[4 * 9] += 0.25;
  CHECK(*result(repeated->stream, 0.5).metrics["errors.normalizer_error.max"] > 1e-6);
}

TEST_CASE("equal keys: the normaliser is exact whatever is sampled") {
  const auto owned = make_stream({.tokens = 40, .d = 4, .dv = 6, .kind = StreamKind::kEqualKeys});
  const CellResult result = replay_subgen(
      owned->stream, 20, {{"delta", Value{0.5}}, {"t", count_of(2)}, {"s", count_of(4)}});
  CHECK(*result.metrics["errors.normalizer_error.max"] < 1e-13);
}

TEST_CASE("one cluster with one sample: tau = n exp<q, k of the sample>") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 3});
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  Stepper stepper(
      owned->stream, 10, algorithm,
      params_for(algorithm, {{"delta", Value{1e9}}, {"t", count_of(1)}, {"s", count_of(2)}}), 5);
  while (stepper.next()) {
    const SubgenParts parts = subgen_parts(stepper.sketch());
    REQUIRE(parts.samples.size() == 1);
    const NaiveRow exact = naive_row(owned->stream, 0, stepper.row());
    const Real e = std::exp(exact.x[parts.samples.front().token] - exact.max);
    const double tau = static_cast<double>(static_cast<Real>(stepper.row() + 1) * e);
    const Answer estimate = library_answer(owned->stream, 0, stepper.row(), stepper.sketch());
    CHECK(estimate.normalizer == doctest::Approx(tau).epsilon(1e-13));
  }
}

TEST_CASE("both sums exact is exact attention, and memory stays that of the sampled state") {
  const auto owned = make_stream({.tokens = 60, .d = 5, .dv = 4, .heads_per_kv = 3});
  const Given sampled = {{"delta", Value{2.0}}, {"t", count_of(2)}, {"s", count_of(3)}};
  Given exact(sampled);
  exact.emplace_back("numerator", word_of("exact"));
  exact.emplace_back("normalizer", word_of("exact"));
  const CellResult a = replay_subgen(owned->stream, 30, sampled, 4);
  const CellResult b = replay_subgen(owned->stream, 30, exact, 4);
  CHECK(*b.metrics["errors.relative_l2.max"] < 1e-13);
  CHECK(*b.metrics["errors.numerator_error.max"] < 1e-13);
  CHECK(*b.metrics["errors.normalizer_error.max"] < 1e-13);
  CHECK(*b.metrics["mass.kept.mean"] == 1.0);
  CHECK(a.memory.bytes == b.memory.bytes);
  CHECK(a.memory.peak_bytes == b.memory.peak_bytes);
  CHECK(a.memory.distinct_tokens == b.memory.distinct_tokens);
  CHECK(*a.metrics["mass.kept.mean"] < 0.9);
}

TEST_CASE("attribution: one exact sum leaves the other sum's error alone") {
  const auto owned = make_stream({.tokens = 60, .d = 5, .dv = 4});
  const Given sampled = {{"delta", Value{3.0}}, {"t", count_of(2)}, {"s", count_of(3)}};
  Given exact_numerator(sampled);
  exact_numerator.emplace_back("numerator", word_of("exact"));
  Given exact_normalizer(sampled);
  exact_normalizer.emplace_back("normalizer", word_of("exact"));
  const CellResult both = replay_subgen(owned->stream, 30, sampled, 8);
  const CellResult numerator = replay_subgen(owned->stream, 30, exact_numerator, 8);
  const CellResult normalizer = replay_subgen(owned->stream, 30, exact_normalizer, 8);
  CHECK(*numerator.metrics["errors.numerator_error.max"] < 1e-13);
  CHECK(*numerator.metrics["errors.normalizer_error.mean"] ==
        doctest::Approx(*both.metrics["errors.normalizer_error.mean"]).epsilon(1e-12));
  CHECK(*normalizer.metrics["errors.normalizer_error.max"] < 1e-13);
  CHECK(*normalizer.metrics["errors.numerator_error.mean"] ==
        doctest::Approx(*both.metrics["errors.numerator_error.mean"]).epsilon(1e-12));
  CHECK(*both.metrics["errors.normalizer_error.mean"] > 0.01);
  CHECK(*both.metrics["errors.numerator_error.mean"] > 0.01);
}

}  // namespace subgen_limits_test
}  // namespace kvbench::test
