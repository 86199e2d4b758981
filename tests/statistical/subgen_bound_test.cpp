// I8: Theorem 1 with explicit constants. One Bernoulli per seed, at one row.
#include <doctest/doctest.h>

#include <cmath>

#include "statistical/false_alarm.hpp"
#include "statistical/subgen_draws.hpp"
#include "support/algorithm_named.hpp"
#include "support/library_answer.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace subgen_bound_test {

constexpr double kEpsilon = 1.0;
constexpr double kDelta = 0.5;

std::unique_ptr<OwnedStream> bound_stream() {
  auto owned =
      make_stream({.tokens = 120, .d = 4, .dv = 4, .kind = StreamKind::kClustered, .seed = 11});
  for (double& x : owned->queries[0]) x *= 0.5;
  return owned;
}

// s and t that suffice for failure 0.01 at epsilon <= 1.
SubgenCase sufficient_case(const Stream& stream) {
  const Index n = stream.shape.tokens;
  const double op = naive_spectral_norm(stream.values, 0, n);
  const double fro = naive_frobenius_norm(stream.values, 0, n);
  const double srank = fro * fro / (op * op);
  double r = 0.0;
  for (Index k = 0; k < stream.shape.d; ++k) {
    r += std::pow(stream.shape.scale * stream.query(0, n - 1)[k], 2);
  }
  const double rho = std::exp(2.0 * kDelta * std::sqrt(r));
  const double m = static_cast<double>(naive_clusters(stream, n, kDelta).clusters.size());
  const double eps2 = kEpsilon * kEpsilon;
  const double chebyshev = 450.0 * (rho - 1.0) * (rho - 1.0) / (rho * eps2);
  const double chernoff = 27.0 * rho * std::log(400.0 * m) / eps2;
  return {&stream, kDelta, static_cast<Index>(std::ceil(std::fmin(chebyshev, chernoff))),
          static_cast<Index>(std::ceil(1800.0 * srank / eps2))};
}

std::int64_t failures(const SubgenCase& c, const SubgenDraws& draws, std::int64_t runs) {
  const Stream& stream = *c.stream;
  const Index row = stream.shape.tokens - 1;
  const NaiveRow exact = naive_row(stream, 0, row);
  Real p_norm = 0;
  for (const Real p : exact.p) p_norm += p * p;
  const double limit = kEpsilon * std::sqrt(static_cast<double>(p_norm)) *
                       naive_spectral_norm(stream.values, 0, row + 1);
  LibraryAnswer answer(stream, 0, row);
  std::int64_t failed = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    const Answer estimate = answer(draws(first_seed() + static_cast<std::uint32_t>(run)).sketch);
    double error = 0.0;
    for (std::size_t k = 0; k < exact.a.size(); ++k) {
      error += std::pow(estimate.answer[k] - static_cast<double>(exact.a[k]), 2);
    }
    failed += std::sqrt(error) > limit ? 1 : 0;
  }
  return failed;
}

double bound_p(const SubgenCase& c, const SubgenDraws& draws, std::int64_t runs) {
  return binomial_tail(failures(c, draws, runs), runs, 0.01);
}

TEST_CASE("I8: the bound of Theorem 1 fails for at most one seed in a hundred") {
  HonestAlarm alarm("I8 Theorem 1");
  const auto owned = bound_stream();
  const SubgenCase c = sufficient_case(owned->stream);
  alarm.check(bound_p(c, library_draws(c), seed_count(300)));
}

TEST_CASE("I8 is red at 15 failures of 300 seeds and 29 of 1000, not before") {
  CHECK(binomial_tail(14, 300, 0.01) > kTheoremLevel);
  CHECK(binomial_tail(15, 300, 0.01) < kTheoremLevel);
  CHECK(binomial_tail(28, 1000, 0.01) > kTheoremLevel);
  CHECK(binomial_tail(29, 1000, 0.01) < kTheoremLevel);
}

TEST_CASE("epsilon resolves to these t and s, not capped, with the bound that they verify") {
  const auto owned = bound_stream();
  const SubgenCase c = sufficient_case(owned->stream);
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  const Params params =
      params_for(algorithm, {{"delta", Value{kDelta}}, {"epsilon", Value{kEpsilon}}});
  Stepper stepper(owned->stream, owned->stream.shape.tokens - 1, algorithm, params);
  const Derived derived = stepper.algorithm().derived();
  CHECK(derived_real(derived, "t") == static_cast<double>(c.t));
  CHECK(derived_real(derived, "s") == static_cast<double>(c.s));
  CHECK(derived_real(derived, "epsilon_effective") <= kEpsilon);
  CHECK(derived_real(derived, "epsilon_effective") > 0.99 * kEpsilon);
  CHECK(derived_real(derived, "proved_t") == static_cast<double>(c.t));
  CHECK(derived_real(derived, "proved_s") == static_cast<double>(c.s));
}

TEST_CASE("I8 turns red on too few slots or samples, and on slots that share a coin") {
  const auto owned = bound_stream();
  const SubgenCase c = sufficient_case(owned->stream);
  SubgenCase few_slots = c;
  few_slots.s = 2;
  CHECK(bound_p(few_slots, naive_draws(few_slots), 300) < kTheoremLevel);
  CHECK(bound_p(few_slots, library_draws(few_slots), 300) < kTheoremLevel);
  // One sample per cluster stands for all of it, however far the query tells them apart.
  SubgenCase one_cluster = c;
  one_cluster.delta = 1e9;
  one_cluster.t = 1;
  CHECK(bound_p(one_cluster, naive_draws(one_cluster), 300) < kTheoremLevel);
  CHECK(bound_p(c, naive_draws(c, SubgenBug::kSharedSlotCoin), 300) < kTheoremLevel);
}

}  // namespace subgen_bound_test
}  // namespace kvbench::test
