// subgen for a wanted accuracy: t and s of Theorem 1 with explicit constants, capped and flagged.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/given.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"
#include "support/naive_subgen.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace subgen_epsilon_test {

struct Wanted {
  double t;
  double s;
  bool capped;
  bool vacuous;  // before it is known what trivial answers reach (tests/replay/vacuous_test.cpp)
  bool sublinear;
  bool operator==(const Wanted&) const = default;
};

enum class Mistake { kNone, kOneHead, kPromptRows, kEpsilonNotSquared, kRhoOfDelta, kNoScale };

// s = 1800 srank / eps^2 and t = min(450 (rho - 1)^2 / rho, 27 rho ln(400 m')) / eps^2, both up,
// at least 1, at most 256 n; rho = e^(2 delta r) by its logarithm.
Wanted wanted(const Stream& stream, Index prompt, double delta, double epsilon,
              Mistake mistake = Mistake::kNone) {
  const Index n = stream.shape.tokens;
  Real r = 0;
  for (std::size_t g = 0; g < stream.queries.size(); ++g) {
    if (mistake == Mistake::kOneHead && g > 0) continue;
    for (Index i = mistake == Mistake::kPromptRows ? 0 : prompt; i < n; ++i) {
      Real norm = 0;
      for (Index k = 0; k < stream.shape.d; ++k) {
        norm += std::pow(static_cast<Real>(stream.query(static_cast<int>(g), i)[k]), 2);
      }
      const double scale = mistake == Mistake::kNoScale ? 1.0 : stream.shape.scale;
      r = std::max(r, scale * std::sqrt(norm));
    }
  }
  const Real log_rho = (mistake == Mistake::kRhoOfDelta ? 1 : 2) * delta * r;
  const Real srank = std::pow(naive_frobenius_norm(stream.values, 0, n) /
                                  static_cast<Real>(naive_spectral_norm(stream.values, 0, n)),
                              2);
  const Real m = static_cast<Real>(naive_clusters(stream, n, delta).clusters.size());
  const Real log_epsilon =
      (mistake == Mistake::kEpsilonNotSquared ? 1 : 2) * std::log(static_cast<Real>(epsilon));
  const Real log_cap = std::log(256 * static_cast<Real>(n));
  const auto size = [&](Real logarithm) {
    if (logarithm > log_cap) return 256.0 * static_cast<double>(n);
    return std::max(1.0, static_cast<double>(std::ceil(std::exp(logarithm))));
  };
  const Real log_t = std::min(std::log(450.0L) + log_rho + 2 * std::log(-std::expm1(-log_rho)),
                              std::log(27 * std::log(400 * m)) + log_rho) -
                     log_epsilon;
  const Real log_s = std::log(1800 * srank) - log_epsilon;
  Wanted out;
  out.t = size(log_t);
  out.s = size(log_s);
  out.capped = log_t > log_cap || log_s > log_cap;
  out.sublinear =
      static_cast<double>(m) * (out.t + 1.0) + 2.0 * out.s < 2.0 * static_cast<double>(n);
  out.vacuous = out.capped || !out.sublinear;
  return out;
}

Wanted resolved(const Stream& stream, Index prompt, double delta, double epsilon) {
  const AlgorithmDescription& algorithm = algorithm_named("subgen");
  Stepper stepper(stream, prompt, algorithm,
                  params_for(algorithm, {{"delta", number(delta)}, {"epsilon", number(epsilon)}}));
  const Derived derived = stepper.algorithm().derived();
  Wanted out{derived_real(derived, "t"), derived_real(derived, "s"), false, false, false};
  const double cap = 256.0 * static_cast<double>(stream.shape.tokens);
  const double proved_t = derived_real(derived, "proved_t");
  const double proved_s = derived_real(derived, "proved_s");
  CHECK(std::min(proved_t, cap) == out.t);
  CHECK(std::min(proved_s, cap) == out.s);
  CHECK(derived_real(derived, "promised_epsilon_spectral") == epsilon);
  out.capped = proved_t > cap || proved_s > cap;
  for (const auto& [name, value] : derived) {
    if (name == "sublinear") out.sublinear = std::get<bool>(value);
  }
  const std::optional<Promise> promise = stepper.algorithm().promise();
  REQUIRE(promise);
  CHECK(promise->epsilon == epsilon);
  out.vacuous = promise->vacuous;
  return out;
}

TEST_CASE("t and s are those of the theorem's constants, capped at 256 n and flagged") {
  int capped = 0;
  int verified = 0;
  for (const double query_size : {0.2, 1.0, 4000.0}) {
    const auto owned = make_stream({.tokens = 60,
                                    .d = 4,
                                    .dv = 3,
                                    .heads_per_kv = 2,
                                    .kind = StreamKind::kClustered,
                                    .query_size = query_size});
    for (const Index prompt : {0, 40}) {
      for (const double delta : {0.0, 0.05, 0.6, 4.0, 30.0}) {
        for (const double epsilon : {1.0, 0.7, 0.3, 0.01}) {
          CAPTURE(query_size);
          CAPTURE(delta);
          CAPTURE(epsilon);
          const Wanted expected = wanted(owned->stream, prompt, delta, epsilon);
          const Wanted found = resolved(owned->stream, prompt, delta, epsilon);
          CHECK(found.t == expected.t);
          CHECK(found.s == expected.s);
          CHECK(found.capped == expected.capped);
          CHECK(found.vacuous == expected.vacuous);
          CHECK(found.sublinear == expected.sublinear);
          capped += found.capped ? 1 : 0;
          verified += found.capped ? 0 : 1;
        }
      }
    }
  }
  CHECK(capped > 10);
  CHECK(verified > 10);
}

TEST_CASE("a bound that is met by less than the tokens themselves is told as sublinear") {
  // 4000 equal keys and values: one cluster, srank 1, and delta 0 wants one sample.
  Rows keys(4000, {1.0});
  const auto owned = stream_of(keys, keys, {keys});
  const Wanted found = resolved(owned->stream, 3999, 0.0, 1.0);
  CHECK(found == Wanted{1, 1800, false, false, true});
  const auto shorter = truncated(owned->stream, 1800);
  CHECK(resolved(shorter->stream, 1799, 0.0, 1.0) == Wanted{1, 1800, false, true, false});
}

}  // namespace subgen_epsilon_test
}  // namespace kvbench::test
