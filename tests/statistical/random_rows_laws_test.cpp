// The first pivot of wildcat follows exp(|k|^2); both sums of performer have the exact ones as
// expectation, and one kernel value of independent features the textbook variance.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "statistical/false_alarm.hpp"
#include "support/algorithm_named.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace random_rows_laws_test {

constexpr std::int64_t kRuns = 4000;

Value count(std::int64_t x) { return Value{x}; }

// p of the first pivots among 20 tokens, for a law of exp(power |k|^2 scale / tau^2).
double first_pivot_p(const Stream& stream, double power, std::int64_t runs) {
  const AlgorithmDescription& algorithm = algorithm_named("wildcat");
  const Params params = params_for(algorithm, {{"budget", count(1)},
                                               {"sinks", count(0)},
                                               {"window", count(0)},
                                               {"rank", count(1)},
                                               {"centre", Value{false}}});
  std::vector<std::int64_t> counts(20, 0);
  for (std::int64_t run = 0; run < runs; ++run) {
    Stepper stepper(stream, 20, algorithm, params, first_seed() + static_cast<std::uint32_t>(run));
    stepper.next();
    ++counts[stepper.sketch()[0].token];
  }
  std::vector<double> law;
  double total = 0.0;
  for (Index j = 0; j < 20; ++j) {
    double square = 0.0;
    for (Index k = 0; k < stream.shape.d; ++k) square += stream.keys(j, k) * stream.keys(j, k);
    law.push_back(std::exp(power * square * stream.shape.scale / 3.94582));
    total += law.back();
  }
  for (double& p : law) p /= total;
  return goodness_of_fit(counts, law);
}

struct Sums {
  std::vector<double> denominator;  // over the exact one, by run
  std::vector<double> numerator;    // its first channel, likewise
  std::vector<double> off;          // squared relative error of the denominator
};

// Features alone, of one absorbed token or of ten; `lost`: what a planted bug leaves out.
Sums sums(const Stream& stream, Index tokens, const char* draw, Index features, double lost,
          std::int64_t runs) {
  const AlgorithmDescription& algorithm = algorithm_named("performer");
  const Params params = params_for(algorithm, {{"features", count(features)},
                                               {"sinks", count(0)},
                                               {"recent", count(0)},
                                               {"draw", Value{std::string(draw)}}});
  Real exact = 0;
  Real exact_numerator = 0;
  for (Index j = 0; j < tokens; ++j) {
    const Real e = std::exp(naive_logit(stream, 0, tokens, j));
    exact += e;
    exact_numerator += e * static_cast<Real>(stream.values(j, 0));
  }
  Sums out;
  for (std::int64_t run = 0; run < runs; ++run) {
    Stepper stepper(stream, tokens, algorithm, params,
                    first_seed() + static_cast<std::uint32_t>(run));
    stepper.next();
    const Sketch& sketch = stepper.sketch();
    Real den = 0;
    Real num = 0;
    for (const SketchRow& row : sketch.rows()) {
      if (!row.feature) continue;
      const Real x = naive_feature_logit(stream, 0, tokens, sketch.own_keys[row.own_key]) +
                     static_cast<Real>(sketch.feature_shift + lost);
      den += static_cast<Real>(row.w_den) * std::exp(x);
      num += static_cast<Real>(row.w_num) * std::exp(x) *
             static_cast<Real>(sketch.own_values[row.own_value][0]);
    }
    out.denominator.push_back(static_cast<double>(den / exact));
    out.numerator.push_back(static_cast<double>(num / exact_numerator));
    const double off = out.denominator.back() - 1;
    out.off.push_back(off * off);
  }
  return out;
}

double mean_p(const std::vector<double>& samples, double expectation) {
  return normal_two_sided(mean_z(samples, expectation));
}

// Small queries and keys, so that sums of some features are near normal.
std::unique_ptr<OwnedStream> small_stream() {
  auto owned = make_stream({.tokens = 12, .d = 4, .dv = 2, .seed = 9, .query_size = 0.5});
  for (double& x : owned->keys) x *= 0.5;
  for (double& x : owned->values) x += 2.0;
  return owned;
}

// scale |q + k|^2 of query 1 and token 0.
double spread(const Stream& stream) {
  double sum = 0.0;
  for (Index k = 0; k < stream.shape.d; ++k) {
    const double x = stream.query(0, 1)[k] + stream.keys(0, k);
    sum += x * x;
  }
  return sum * stream.shape.scale;
}

TEST_CASE("wildcat draws its first pivot by exp(|k|^2)") {
  const auto owned = make_stream({.tokens = 22, .d = 4, .dv = 2});
  HonestAlarm alarm("first pivot of wildcat");
  alarm.check(first_pivot_p(owned->stream, 1.0, seed_count(kRuns)));
  // Half the exponent, as of the Gaussian kernel; no exponent.
  CHECK(first_pivot_p(owned->stream, 0.5, kRuns) < alarm_level());
  CHECK(first_pivot_p(owned->stream, 0.0, kRuns) < alarm_level());
}

TEST_CASE("performer: both sums are unbiased, and one kernel value has the textbook variance") {
  const auto owned = small_stream();
  HonestAlarm alarm("features of performer");
  for (const char* draw : {"orthogonal", "iid"}) {
    const Sums ten = sums(owned->stream, 10, draw, 64, 0.0, seed_count(kRuns));
    alarm.check(mean_p(ten.denominator, 1.0));
    alarm.check(mean_p(ten.numerator, 1.0));
  }
  const double variance = std::expm1(spread(owned->stream)) / 64;
  const Sums one = sums(owned->stream, 1, "iid", 64, 0.0, seed_count(kRuns));
  alarm.check(mean_p(one.off, variance));
  // A planted bug: 48 features, as if they were 64.
  const Sums fewer = sums(owned->stream, 1, "iid", 48, 0.0, kRuns);
  CHECK(mean_p(fewer.off, variance) < alarm_level());
}

TEST_CASE("performer's sums turn red without -scale |k|^2 / 2 and with four features too few") {
  const auto owned = small_stream();
  double square = 0.0;
  for (Index k = 0; k < 4; ++k) square += owned->keys[k] * owned->keys[k];
  const double lost = 0.5 * owned->stream.shape.scale * square;
  CHECK(mean_p(sums(owned->stream, 1, "iid", 64, lost, kRuns).denominator, 1.0) < alarm_level());
  CHECK(mean_p(sums(owned->stream, 10, "iid", 64, std::log(64.0 / 60.0), kRuns).denominator, 1.0) <
        alarm_level());
}

}  // namespace random_rows_laws_test
}  // namespace kvbench::test
