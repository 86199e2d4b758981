// Laws of the draws of cam and thinformer: merged values have the mean that `draw: expected` adds,
// tokens are merged as often as their probability says; thinning takes each token of a pair alike,
// so that weighted sums are unbiased.
#include <doctest/doctest.h>

#include <string>

#include "statistical/false_alarm.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"

namespace kvbench::test {
namespace merging_laws_test {

constexpr Index kPrompt = 40;
constexpr std::int64_t kRuns = 4000;

Given merging(const char* draw) {
  return {{"budget", count_of(10)},
          {"sinks", count_of(2)},
          {"merge", count_of(3)},
          {"draw", word_of(draw)}};
}

// The first number of the value of the kept row at `place`, when the first decode row is answered.
double value_at(const Stream& stream, const char* draw, Index place, std::uint32_t seed) {
  const Sketch sketch = sketches_of("cam", stream, kPrompt, merging(draw), seed).front();
  const SketchRow& row = sketch[place];
  return row.own_value < 0 ? stream.values(row.token, 0) : sketch.own_values[row.own_value][0];
}

// The p-value of the mean of bernoulli's values over seeds, against `expected`.
double mean_p(const Stream& stream, Index place, double expected, std::int64_t runs) {
  std::vector<double> values;
  for (std::int64_t run = 0; run < runs; ++run) {
    values.push_back(
        value_at(stream, "bernoulli", place, first_seed() + static_cast<std::uint32_t>(run)));
  }
  return normal_two_sided(mean_z(values, expected));
}

// Weighted sums of the first value over the kept, for each seed, against that over all tokens.
double sum_p(const Stream& stream, Index prompt, bool symmetrize, std::int64_t runs) {
  const Given given{{"g", count_of(0)}, {"symmetrize", Value{symmetrize}}};
  double expected = 0.0;
  for (Index j = 0; j < prompt; ++j) expected += stream.values(j, 0);
  std::vector<double> sums;
  for (std::int64_t run = 0; run < runs; ++run) {
    const Sketch sketch = sketches_of("thinformer", stream, prompt, given,
                                      first_seed() + static_cast<std::uint32_t>(run))
                              .front();
    double sum = 0.0;
    for (const SketchRow& row : sketch.rows()) {
      if (row.token < prompt) sum += row.w_num * stream.values(row.token, 0);
    }
    sums.push_back(sum);
  }
  return normal_two_sided(mean_z(sums, expected));
}

TEST_CASE("merged values of cam have the mean that draw expected adds") {
  HonestAlarm alarm("means of cam's merged values");
  const auto owned = make_stream({.tokens = 42, .d = 4, .dv = 2, .seed = 3, .query_size = 2});
  const auto expected = [&](Index place) {
    return value_at(owned->stream, "expected", place, first_seed());
  };
  for (const Index place : {2, 3, 4}) {
    CAPTURE(place);
    alarm.check(mean_p(owned->stream, place, expected(place), seed_count(kRuns)));
    // Neither the token's own value nor another place's is that mean.
    CHECK(mean_p(owned->stream, place, value_at(owned->stream, "none", place, 0), kRuns) <
          alarm_level());
    CHECK(mean_p(owned->stream, place, expected(place + 1), kRuns) < alarm_level());
  }
}

TEST_CASE("sums over what thinformer keeps are unbiased with its coin, and biased without") {
  HonestAlarm alarm("sums over thinformer's tokens");
  auto owned = make_stream({.tokens = 17, .d = 4, .dv = 2, .seed = 3});
  // The first token of the first pair is far from the mean, and stays unless the coin says no.
  owned->values[0] = 6.0;
  alarm.check(sum_p(owned->stream, 16, true, seed_count(kRuns)));
  CHECK(sum_p(owned->stream, 16, false, kRuns) < alarm_level());
}

}  // namespace merging_laws_test
}  // namespace kvbench::test
