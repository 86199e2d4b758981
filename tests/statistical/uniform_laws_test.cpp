// I22: uniform sampling without replacement includes every token alike and has the textbook
// variance M^2 (1 - h/M) S^2 / h; with replacement, counts are multinomial; halving by signs throws
// fair coins. Next to it the one draw of kcenter.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "statistical/false_alarm.hpp"
#include "support/algorithm_named.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace uniform_laws_test {

constexpr Index kSinks = 5;
constexpr Index kPrompt = 53;
constexpr Index kMiddle = kPrompt - kSinks;  // 48
constexpr std::int64_t kRuns = 4000;

using Given = std::vector<std::pair<std::string, Value>>;

Given given(const Given& more) {
  Given out = {{"sinks", Value{std::int64_t{kSinks}}}};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

// The weights of the middle's tokens, 0 if not kept, for each seed.
std::vector<std::vector<double>> weights(const Stream& stream, const Given& params,
                                         std::int64_t runs) {
  const AlgorithmDescription& algorithm = algorithm_named("uniform");
  const Params p = params_for(algorithm, given(params));
  std::vector<std::vector<double>> out;
  for (std::int64_t run = 0; run < runs; ++run) {
    Stepper stepper(stream, kPrompt, algorithm, p, first_seed() + static_cast<std::uint32_t>(run));
    stepper.next();
    std::vector<double>& w = out.emplace_back(static_cast<std::size_t>(kMiddle), 0.0);
    for (const SketchRow& row : stepper.sketch().rows()) {
      if (row.token >= kSinks && row.token < kPrompt) {
        w[row.token - kSinks] = row.w_num;
      }
    }
  }
  return out;
}

// Inclusion counts of samples of h = f M: sum (O - R f)^2 / (R f (1 - f)) (M - 1) / M is
// chi-square with M - 1 degrees of freedom.
double inclusion_p(const std::vector<std::vector<double>>& runs) {
  std::vector<double> counts(kMiddle, 0.0);
  double kept = 0.0;
  for (const auto& w : runs) {
    for (std::size_t j = 0; j < w.size(); ++j) {
      if (w[j] != 0.0) {
        counts[j] += 1.0;
        kept += 1.0;
      }
    }
  }
  const double r = static_cast<double>(runs.size());
  const double m = static_cast<double>(kMiddle);
  const double f = kept / (r * m);
  double statistic = 0.0;
  for (const double count : counts) {
    statistic += (count - r * f) * (count - r * f) / (r * f * (1 - f)) * (m - 1) / m;
  }
  return chi_square_tail(statistic, m - 1);
}

struct TotalP {
  double mean;
  double spread;
};

// The weighted total of a fixed column y against its expectation and, with h draws, its variance.
TotalP total_p(const Stream& stream, const std::vector<std::vector<double>>& runs, double h) {
  std::vector<double> y;
  double sum = 0.0;
  for (Index j = kSinks; j < kPrompt; ++j) {
    y.push_back(1.0 + stream.values(j, 0));
    sum += y.back();
  }
  const double m = static_cast<double>(kMiddle);
  double spread = 0.0;
  for (const double value : y) spread += (value - sum / m) * (value - sum / m) / (m - 1);
  const double variance = m * m * (1 - h / m) * spread / h;
  std::vector<double> totals;
  std::vector<double> squares;
  for (const auto& w : runs) {
    double total = 0.0;
    for (std::size_t j = 0; j < y.size(); ++j) total += w[j] * y[j];
    totals.push_back(total);
    squares.push_back((total - sum) * (total - sum));
  }
  return {normal_two_sided(mean_z(totals, sum)), normal_two_sided(mean_z(squares, variance))};
}

// How often token 0 of 101 stays, against its probability.
double first_token_p(const Stream& stream, const std::string& form, double probability,
                     std::int64_t runs) {
  const AlgorithmDescription& algorithm = algorithm_named("uniform");
  const Params p = params_for(
      algorithm,
      {{"T", Value{std::int64_t{1}}}, {"sinks", Value{std::int64_t{0}}}, {"form", Value{form}}});
  std::int64_t stays = 0;
  for (std::int64_t run = 0; run < runs; ++run) {
    Stepper stepper(stream, 101, algorithm, p, first_seed() + static_cast<std::uint32_t>(run));
    stepper.next();
    const std::vector<Index> kept = kept_tokens(stepper.sketch());
    CHECK(kept.size() == 51);  // the decode token among them
    stays += kept.front() == 0 ? 1 : 0;
  }
  return binomial_two_sided(stays, runs, probability);
}

TEST_CASE("I22: without replacement every token is kept alike, with the textbook variance") {
  HonestAlarm alarm("I22 uniform sampling");
  const auto owned = make_stream({.tokens = 54, .d = 2, .dv = 2, .seed = 5});
  for (const std::int64_t T : {1, 2}) {
    CAPTURE(T);
    const auto runs = weights(owned->stream, {{"T", Value{T}}}, seed_count(kRuns));
    alarm.check(inclusion_p(runs));
    const TotalP p = total_p(owned->stream, runs, static_cast<double>(kMiddle >> T));
    alarm.check(p.mean);
    alarm.check(p.spread);
  }
}

TEST_CASE("I22: with replacement, counts are multinomial") {
  HonestAlarm alarm("I22 uniform sampling, with replacement");
  const auto owned = make_stream({.tokens = 54, .d = 2, .dv = 2, .seed = 5});
  const auto runs =
      weights(owned->stream, {{"T", Value{std::int64_t{1}}}, {"replacement", Value{true}}},
              seed_count(kRuns));
  std::vector<std::int64_t> counts(kMiddle, 0);
  std::int64_t repeats = 0;
  for (const auto& w : runs) {
    for (std::size_t j = 0; j < w.size(); ++j) {
      const auto draws = static_cast<std::int64_t>(std::lround(w[j] / 2.0));  // M / h = 2
      counts[j] += draws;
      repeats += draws > 1 ? 1 : 0;
    }
  }
  CHECK(repeats > 0);
  alarm.check(goodness_of_fit(counts, std::vector<double>(static_cast<std::size_t>(kMiddle),
                                                          1.0 / static_cast<double>(kMiddle))));
}

TEST_CASE("I22: halving by signs throws fair coins for all but the first of a block") {
  HonestAlarm alarm("I22 halving by signs");
  const auto owned = make_stream({.tokens = 102, .d = 2, .dv = 2, .seed = 5});
  // The first of 101 tokens has sign +1: it stays only where fewer than 50 of the 100 others have
  // -1, and then it is the first to be taken.
  double fewer = 0.0;
  for (std::int64_t k = 0; k < 50; ++k) {
    fewer += binomial_tail(k, 100, 0.5) - binomial_tail(k + 1, 100, 0.5);
  }
  CHECK(fewer == doctest::Approx(0.4602).epsilon(1e-4));
  alarm.check(first_token_p(owned->stream, "recursive_signs", fewer, seed_count(5 * kRuns)));
  // A sample without preference keeps it in every second run.
  CHECK(first_token_p(owned->stream, "srswor", fewer, 5 * kRuns) < alarm_level());
}

TEST_CASE("I22: what is left of few tokens, worked") {
  HonestAlarm alarm("I22 few tokens, worked");
  const auto owned = make_stream({.tokens = 6, .d = 2, .dv = 2, .seed = 5});
  // How often each set of tokens (its bits) is left of the first `prompt`.
  const auto counts = [&](Index prompt, const Given& more) {
    const AlgorithmDescription& algorithm = algorithm_named("uniform");
    Given all = {{"sinks", Value{std::int64_t{0}}}, {"T", Value{std::int64_t{1}}}};
    all.insert(all.end(), more.begin(), more.end());
    const Params p = params_for(algorithm, all);
    std::vector<std::int64_t> out(std::size_t{1} << prompt, 0);
    for (std::int64_t run = 0; run < seed_count(kRuns); ++run) {
      Stepper stepper(owned->stream, prompt, algorithm, p,
                      first_seed() + static_cast<std::uint32_t>(run));
      stepper.next();
      std::size_t set = 0;
      for (const Index token : kept_tokens(stepper.sketch())) {
        if (token < prompt) set |= std::size_t{1} << token;
      }
      ++out[set];
    }
    return out;
  };
  // Two of five without replacement: every pair alike. Two draws with replacement: a pair in two
  // orders, a token alone in one.
  std::vector<double> pairs(32, 0.0);
  std::vector<double> draws(32, 0.0);
  for (std::size_t i = 0; i < 5; ++i) {
    draws[std::size_t{1} << i] = 1.0 / 25.0;
    for (std::size_t j = 0; j < i; ++j) {
      pairs[(std::size_t{1} << i) | (std::size_t{1} << j)] = 1.0 / 10.0;
      draws[(std::size_t{1} << i) | (std::size_t{1} << j)] = 2.0 / 25.0;
    }
  }
  alarm.check(goodness_of_fit(counts(5, {}), pairs));
  alarm.check(goodness_of_fit(counts(5, {{"replacement", Value{true}}}), draws));
  // Halving three by signs: +--, +-+ leave token 1, ++- leaves token 2, +++ leaves token 0.
  const Given signs = {{"form", Value{std::string("recursive_signs")}}};
  const std::vector<double> halves = {0.0, 0.25, 0.5, 0.0, 0.25, 0.0, 0.0, 0.0};
  alarm.check(goodness_of_fit(counts(3, signs), halves));
  // Each law turns red on the draws of another.
  CHECK(goodness_of_fit(counts(5, {{"replacement", Value{true}}}), pairs) < alarm_level());
  CHECK(goodness_of_fit(counts(5, signs), pairs) < alarm_level());
  CHECK(goodness_of_fit(counts(3, {}), halves) < alarm_level());
}

TEST_CASE("the random first centre of kcenter is any token of the middle alike") {
  HonestAlarm alarm("random first centre of kcenter");
  const auto owned = make_stream({.tokens = 54, .d = 2, .dv = 2, .seed = 5});
  const auto law_p = [&](const char* first, std::int64_t runs) {
    const AlgorithmDescription& algorithm = algorithm_named("kcenter");
    const Params p = params_for(algorithm, given({{"budget", Value{std::int64_t{kSinks + 1}}},
                                                  {"recent", Value{std::int64_t{0}}},
                                                  {"first", Value{std::string(first)}}}));
    std::vector<std::int64_t> counts(kMiddle, 0);
    for (std::int64_t run = 0; run < runs; ++run) {
      Stepper stepper(owned->stream, kPrompt, algorithm, p,
                      first_seed() + static_cast<std::uint32_t>(run));
      stepper.next();
      const std::vector<Index> kept = kept_tokens(stepper.sketch());
      REQUIRE(std::ssize(kept) == kSinks + 2);  // sinks, the centre, the decode token
      ++counts[kept[kSinks] - kSinks];
    }
    return goodness_of_fit(counts, std::vector<double>(static_cast<std::size_t>(kMiddle),
                                                       1.0 / static_cast<double>(kMiddle)));
  };
  alarm.check(law_p("random", seed_count(kRuns)));
  CHECK(law_p("oldest", kRuns) < alarm_level());
}

TEST_CASE("I22 turns red on a biased halving, on lost weights and on draws with replacement") {
  const auto owned = make_stream({.tokens = 54, .d = 2, .dv = 2, .seed = 5});
  const Value one{std::int64_t{1}};
  // The released code's halving forces the first sign.
  CHECK(inclusion_p(weights(owned->stream,
                            {{"T", one}, {"form", Value{std::string("recursive_signs")}}}, kRuns)) <
        alarm_level());
  const auto unweighted =
      weights(owned->stream, {{"T", one}, {"weights", Value{std::string("none")}}}, kRuns);
  CHECK(total_p(owned->stream, unweighted, 24).mean < alarm_level());
  const auto repeated = weights(owned->stream, {{"T", one}, {"replacement", Value{true}}}, kRuns);
  CHECK(total_p(owned->stream, repeated, 24).spread < alarm_level());
}

}  // namespace uniform_laws_test
}  // namespace kvbench::test
