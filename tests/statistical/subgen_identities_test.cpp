// I3: E z = N and E ||z - N||^2 = (||a||^2 ||V||_F^2 - ||N||^2) / s for the numerator sum;
// I4: E tau = Z and Var tau = sum n_i^2 Var_{C_i}(e^x) / t for the normaliser. Exact identities, on
// any stream; z-tests over seeds, shown to fail on planted bugs.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "dump/dump.hpp"
#include "statistical/false_alarm.hpp"
#include "statistical/subgen_draws.hpp"
#include "support/algorithm_named.hpp"
#include "support/library_answer.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"
#include "support/naive_rules.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace subgen_identities_test {

// Exact moments at the last row, query head 0, all under the shift of the row's largest logit.
struct Moments {
  std::vector<double> numerator;   // N
  double numerator_variance = 0;   // E ||z - N||^2
  double normalizer = 0;           // Z
  double normalizer_variance = 0;  // Var tau
};

Moments exact_moments(const SubgenCase& c) {
  const Stream& stream = *c.stream;
  const Index n = stream.shape.tokens;
  const NaiveRow row = naive_row(stream, 0, n - 1);
  std::vector<Real> e;
  for (const Real x : row.x) e.push_back(std::exp(x - row.max));
  Moments out;
  Real squares = 0;
  Real frobenius = 0;
  Real numerator_squares = 0;
  for (Index j = 0; j < n; ++j) {
    squares += e[j] * e[j];
    frobenius += squared_norm(stream.values, j);
  }
  for (std::size_t k = 0; k < row.a.size(); ++k) {
    const Real component = row.a[k] * row.z;
    out.numerator.push_back(static_cast<double>(component));
    numerator_squares += component * component;
  }
  out.numerator_variance =
      static_cast<double>((squares * frobenius - numerator_squares) / static_cast<Real>(c.s));
  out.normalizer = static_cast<double>(row.z);
  Real variance = 0;
  for (const auto& cluster : naive_clusters(stream, n, c.delta).clusters) {
    const Real size = static_cast<Real>(cluster.count);
    Real mean = 0;
    for (const Index j : cluster.members) mean += e[j] / size;
    Real spread = 0;
    for (const Index j : cluster.members) {
      const Real off = e[j] - mean;
      spread += off * off / size;
    }
    variance += size * size * spread / static_cast<Real>(c.t);
  }
  out.normalizer_variance = static_cast<double>(variance);
  return out;
}

struct IdentityP {
  std::vector<double> numerator_mean;  // three fixed directions
  double numerator_spread;
  double normalizer_mean;
  double normalizer_spread;

  double worst_numerator() const {
    double worst = numerator_spread;
    for (const double p : numerator_mean) worst = std::min(worst, p);
    return worst;
  }
  double worst_normalizer() const { return std::min(normalizer_mean, normalizer_spread); }
};

IdentityP identities_p(const SubgenCase& c, const SubgenDraws& draws, std::int64_t runs) {
  const Moments exact = exact_moments(c);
  const std::size_t dv = exact.numerator.size();
  std::vector<std::vector<double>> directions(3, std::vector<double>(dv));
  std::vector<double> expected(3, 0.0);
  for (std::size_t m = 0; m < 3; ++m) {
    for (std::size_t k = 0; k < dv; ++k) {
      directions[m][k] = std::cos(1.0 + static_cast<double>((m + 1) * (k + 1)));
      expected[m] += directions[m][k] * exact.numerator[k];
    }
  }
  std::vector<std::vector<double>> projections(3);
  std::vector<double> numerator_squares;
  std::vector<double> normalizers;
  std::vector<double> normalizer_squares;
  LibraryAnswer answer(*c.stream, 0, c.stream->shape.tokens - 1);
  for (std::int64_t run = 0; run < runs; ++run) {
    const Answer estimate = answer(draws(first_seed() + static_cast<std::uint32_t>(run)).sketch);
    double square = 0.0;
    for (std::size_t k = 0; k < dv; ++k) {
      square += std::pow(estimate.numerator[k] - exact.numerator[k], 2);
    }
    numerator_squares.push_back(square);
    for (std::size_t m = 0; m < 3; ++m) {
      double projection = 0.0;
      for (std::size_t k = 0; k < dv; ++k) projection += directions[m][k] * estimate.numerator[k];
      projections[m].push_back(projection);
    }
    normalizers.push_back(estimate.normalizer);
    normalizer_squares.push_back(std::pow(estimate.normalizer - exact.normalizer, 2));
  }
  IdentityP out;
  for (std::size_t m = 0; m < 3; ++m) {
    out.numerator_mean.push_back(normal_two_sided(mean_z(projections[m], expected[m])));
  }
  out.numerator_spread = normal_two_sided(mean_z(numerator_squares, exact.numerator_variance));
  out.normalizer_mean = normal_two_sided(mean_z(normalizers, exact.normalizer));
  out.normalizer_spread = normal_two_sided(mean_z(normalizer_squares, exact.normalizer_variance));
  return out;
}

// Logits and values grow along the stream, so that a preference for old or new tokens shows.
std::unique_ptr<OwnedStream> identity_stream() {
  auto owned = make_stream({.tokens = 60,
                            .d = 4,
                            .dv = 5,
                            .kind = StreamKind::kClustered,
                            .seed = 3,
                            .query_size = 0.5});
  const double* query = owned->stream.query(0, 59);
  double norm = 0.0;
  for (Index k = 0; k < 4; ++k) norm += query[k] * query[k];
  for (Index j = 0; j < 60; ++j) {
    const double trend = static_cast<double>(j) / 60.0;
    for (Index k = 0; k < 4; ++k) {
      owned->keys[j * 4 + k] += 3.0 * trend * query[k] / norm;
    }
    for (Index k = 0; k < 5; ++k) owned->values[j * 5 + k] += trend;
  }
  return owned;
}

constexpr std::int64_t kRuns = 6000;

SubgenCase identity_case(const OwnedStream& owned) { return {&owned.stream, 6.0, 3, 16}; }

TEST_CASE("I3 and I4: both sums are unbiased and spread exactly as they must") {
  HonestAlarm numerator("I3 numerator is unbiased with the exact variance");
  HonestAlarm normalizer("I4 normaliser is unbiased with the exact variance");
  const auto owned = identity_stream();
  const SubgenCase c = identity_case(*owned);
  REQUIRE(naive_clusters(owned->stream, 60, c.delta).clusters.size() >= 2);
  for (const bool naive : {false, true}) {
    CAPTURE(naive);
    const IdentityP p =
        identities_p(c, naive ? naive_draws(c) : library_draws(c), seed_count(kRuns));
    for (const double mean : p.numerator_mean) numerator.check(mean);
    numerator.check(p.numerator_spread);
    normalizer.check(p.normalizer_mean);
    normalizer.check(p.normalizer_spread);
  }
}

TEST_CASE("I3 turns red on lost factors and on weights that do not fit the law of the slots") {
  const auto owned = identity_stream();
  const SubgenCase c = identity_case(*owned);
  for (const SubgenBug bug :
       {SubgenBug::kHalfNumerator, SubgenBug::kRootWeights, SubgenBug::kUnsquaredNorm,
        SubgenBug::kUniformSlots, SubgenBug::kSharedSlotCoin}) {
    CAPTURE(static_cast<int>(bug));
    CHECK(identities_p(c, naive_draws(c, bug), kRuns).worst_numerator() < alarm_level());
  }
}

TEST_CASE("I4 turns red on wrong weights, frozen samples and shared coins") {
  const auto owned = identity_stream();
  const SubgenCase c = identity_case(*owned);
  for (const SubgenBug bug :
       {SubgenBug::kNormalizerByCount, SubgenBug::kKeepFirstSample, SubgenBug::kSharedSampleCoin}) {
    CAPTURE(static_cast<int>(bug));
    CHECK(identities_p(c, naive_draws(c, bug), kRuns).worst_normalizer() < alarm_level());
  }
}

TEST_CASE("I3 and I4 hold on the shipped dump") {
  HonestAlarm alarm("I3 I4 on the shipped dump");
  const Dump dump(std::string(KVBENCH_SOURCE_DIR) + "/data/smollm2-constitution.h5");
  const auto data = dump.read_stream(dump.info().sequences.front().name, 0, 0, 300);
  const double delta = naive_delta_quantile(data->stream, 0.2);
  const SubgenCase c{&data->stream, delta, 16, 256};
  const IdentityP p = identities_p(c, library_draws(c), seed_count(4000));
  for (const double mean : p.numerator_mean) alarm.check(mean);
  alarm.check(p.numerator_spread);
  alarm.check(p.normalizer_mean);
  alarm.check(p.normalizer_spread);
}

TEST_CASE("the derived predictions are these exact moments") {
  const auto owned = identity_stream();
  const SubgenCase c = identity_case(*owned);
  const Moments exact = exact_moments(c);
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  const Params params = params_for(
      algorithm, {{"delta", Value{c.delta}}, {"t", std::int64_t{c.t}}, {"s", std::int64_t{c.s}}});
  Stepper stepper(owned->stream, 59, algorithm, params);  // row 59 alone is scored
  const Derived derived = stepper.algorithm().derived();
  const NaiveRow row = naive_row(owned->stream, 0, 59);
  Real squares = 0;
  for (const Real x : row.x) squares += std::exp(2 * (x - row.max));
  const double op = naive_spectral_norm(owned->stream.values, 0, 60);
  CHECK(derived_real(derived, "predicted_rmse_numerator") ==
        doctest::Approx(std::sqrt(exact.numerator_variance / static_cast<double>(squares)) / op)
            .epsilon(1e-10));
  CHECK(derived_real(derived, "predicted_rmse_normalizer") ==
        doctest::Approx(std::sqrt(exact.normalizer_variance) / exact.normalizer).epsilon(1e-10));
}

}  // namespace subgen_identities_test
}  // namespace kvbench::test
