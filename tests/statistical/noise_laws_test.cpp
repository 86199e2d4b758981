// I24: Keyformer's noise. Gumbel draws have mean gamma, variance pi^2 / 6 and their distribution;
// logits with Gumbel noise are largest with the probabilities of their softmax; Gaussian draws have
// the same two moments.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "numerics/counter_rng.hpp"
#include "numerics/logit_noise.hpp"
#include "statistical/false_alarm.hpp"
#include "support/probability.hpp"

namespace kvbench::test {
namespace noise_laws_test {

// The m-th draw.
using Draws = std::function<double(std::int64_t m)>;

constexpr std::int64_t kDraws = 40000;
constexpr double kVariance = 1.6449340668482264;  // pi^2 / 6
constexpr double kMean = 0.5772156649015329;
constexpr int kBins = 40;

LogitNoise noise(LogitNoise::Kind kind, bool per_row) {
  return {kind, per_row, CounterRng(first_seed(), 7, "test/noise").key()};
}

// Token draws run over tokens, row draws over rows of one token.
Draws library(LogitNoise::Kind kind, bool per_row) {
  const LogitNoise drawn = noise(kind, per_row);
  return [drawn, per_row](std::int64_t m) {
    return per_row ? drawn.draw(2, m, 5) : drawn.draw(2, 9, m);
  };
}

struct NoiseP {
  double mean;
  double variance;
  double law;
  double neighbours;  // successive draws are uncorrelated

  double least() const { return std::min({mean, variance, law, neighbours}); }
};

NoiseP noise_p(const Draws& draws, const std::function<double(double)>& distribution,
               std::int64_t count) {
  std::vector<double> x;
  std::vector<double> squares;
  std::vector<double> products;
  std::vector<std::int64_t> bins(kBins, 0);
  for (std::int64_t m = 0; m < count; ++m) {
    x.push_back(draws(m));
    squares.push_back((x.back() - kMean) * (x.back() - kMean));
    if (m > 0) products.push_back((x.back() - kMean) * (x[x.size() - 2] - kMean));
    const int bin = static_cast<int>(distribution(x.back()) * kBins);
    ++bins[std::min(kBins - 1, bin)];
  }
  return {normal_two_sided(mean_z(x, kMean)), normal_two_sided(mean_z(squares, kVariance)),
          goodness_of_fit(bins, std::vector<double>(kBins, 1.0 / kBins)),
          normal_two_sided(mean_z(products, 0.0))};
}

double gumbel_distribution(double x) { return std::exp(-std::exp(-x)); }

double gaussian_distribution(double x) {
  return 0.5 * std::erfc((kMean - x) / std::sqrt(2.0 * kVariance));
}

// Which of six logits is largest with noise added, against their softmax.
double argmax_p(const std::function<double(std::int64_t trial, Index token)>& draw,
                std::int64_t trials) {
  const std::vector<double> x = {0.0, 1.0, -1.0, 2.0, 0.5, 0.5};
  std::vector<double> law;
  double sum = 0.0;
  for (const double logit : x) sum += std::exp(logit);
  for (const double logit : x) law.push_back(std::exp(logit) / sum);
  std::vector<std::int64_t> counts(x.size(), 0);
  for (std::int64_t trial = 0; trial < trials; ++trial) {
    std::size_t best = 0;
    double largest = -1e300;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double noisy = x[j] + draw(trial, static_cast<Index>(j));
      if (noisy > largest) best = j;
      largest = std::max(largest, noisy);
    }
    ++counts[best];
  }
  return goodness_of_fit(counts, law);
}

TEST_CASE("I24: Gumbel and Gaussian draws have their moments and laws, per token and per row") {
  HonestAlarm alarm("I24 noise has its moments and law");
  using Kind = LogitNoise::Kind;
  for (const bool per_row : {false, true}) {
    for (const Kind kind : {Kind::kGumbel, Kind::kGaussian}) {
      const NoiseP p = noise_p(library(kind, per_row),
                               kind == Kind::kGumbel ? gumbel_distribution : gaussian_distribution,
                               seed_count(kDraws));
      alarm.check(p.mean);
      alarm.check(p.variance);
      alarm.check(p.law);
      alarm.check(p.neighbours);
    }
  }
}

TEST_CASE("I24: the largest noisy logit has the law of the softmax") {
  HonestAlarm alarm("I24 Gumbel argmax is softmax");
  const LogitNoise row = noise(LogitNoise::Kind::kGumbel, true);
  alarm.check(argmax_p([&](std::int64_t trial, Index token) { return row.draw(0, trial, token); },
                       seed_count(kDraws)));
  const LogitNoise token = noise(LogitNoise::Kind::kGumbel, false);
  alarm.check(argmax_p([&](std::int64_t trial, Index j) { return token.draw(1, 0, 6 * trial + j); },
                       seed_count(kDraws)));
  // Heads draw their own.
  alarm.check(argmax_p(
      [&](std::int64_t trial, Index j) {
        return token.draw(static_cast<int>(trial % 64), 0, 6 * (trial / 64) + j);
      },
      seed_count(kDraws)));
}

TEST_CASE(
    "I24 turns red on a wrong sign, a missing logarithm, a lost scale or mean, shared draws") {
  const Draws gumbel = library(LogitNoise::Kind::kGumbel, false);
  const Draws gaussian = library(LogitNoise::Kind::kGaussian, false);
  const auto level = alarm_level();
  CHECK(noise_p([&](std::int64_t m) { return -gumbel(m); }, gumbel_distribution, kDraws).least() <
        level);
  CHECK(noise_p([&](std::int64_t m) { return std::exp(-gumbel(m)); }, gumbel_distribution, kDraws)
            .least() < level);
  CHECK(noise_p(gaussian, gumbel_distribution, kDraws).law < level);
  CHECK(noise_p([&](std::int64_t m) { return (gaussian(m) - kMean) / std::sqrt(kVariance); },
                gaussian_distribution, kDraws)
            .mean < level);
  CHECK(
      noise_p([&](std::int64_t m) { return kMean + (gaussian(m) - kMean) / std::sqrt(kVariance); },
              gaussian_distribution, kDraws)
          .variance < level);
  CHECK(noise_p([&](std::int64_t m) { return gumbel(m / 2); }, gumbel_distribution, kDraws)
            .neighbours < level);
  // The largest of logits with another noise, or one noise for all.
  CHECK(argmax_p([&](std::int64_t trial, Index j) { return gaussian(6 * trial + j); }, kDraws) <
        level);
  CHECK(argmax_p([&](std::int64_t trial, Index j) { return -gumbel(6 * trial + j); }, kDraws) <
        level);
  CHECK(argmax_p([&](std::int64_t trial, Index) { return gumbel(trial); }, kDraws) < level);
}

}  // namespace noise_laws_test
}  // namespace kvbench::test
