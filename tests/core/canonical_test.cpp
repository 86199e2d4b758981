// Canonical arithmetic on eight numbers has the bits of that on one, which devices use.
#include "numerics/canonical.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "numerics/lanes.hpp"
#include "numerics/logit_noise.hpp"
#include "softcap_values.hpp"

namespace kvbench::test {
namespace canonical_test {

constexpr int kMillion = 1000000;

std::uint64_t bits(double x) { return std::bit_cast<std::uint64_t>(x); }

// Eight numbers at a time through both forms; counts those whose bits differ.
template <class Lanewise, class Scalar>
int differing(const std::vector<double>& x, const Lanewise& lanewise, const Scalar& scalar_form) {
  int count = 0;
  for (std::size_t i = 0; i + Lanes::kCount <= x.size(); i += Lanes::kCount) {
    alignas(64) double out[Lanes::kCount];
    lanewise(Lanes::load(x.data() + i)).store(out);
    for (std::size_t lane = 0; lane < Lanes::kCount; ++lane) {
      count += bits(out[lane]) != bits(scalar_form(x[i + lane]));
    }
  }
  return count;
}

std::vector<double> uniform(int count, double low, double high, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> out(count);
  for (double& x : out) x = draw(rng);
  return out;
}

// Any bit pattern of a finite number.
std::vector<double> any_finite(int count, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<double> out;
  while (static_cast<int>(out.size()) < count) {
    const double x = std::bit_cast<double>(rng());
    if (std::isfinite(x)) out.push_back(x);
  }
  return out;
}

int differing_exps(const std::vector<double>& x) {
  return differing(
      x, [](Lanes v) { return canonical_exp(v); }, [](double v) { return canonical_exp(v); });
}

int differing_softcaps(const std::vector<double>& x, double cap) {
  return differing(
      x, [&](Lanes v) { return canonical_softcap(v, cap); },
      [&](double v) { return canonical_softcap(v, cap); });
}

TEST_CASE("exp: the same bits over five million numbers and at the edges") {
  CHECK(differing_exps(uniform(2 * kMillion, -720.0, 0.0, 1)) == 0);
  CHECK(differing_exps(uniform(kMillion, -1.0, 709.0, 2)) == 0);
  CHECK(differing_exps(uniform(kMillion, -1e-3, 1e-3, 3)) == 0);
  std::vector<double> finite = any_finite(kMillion, 4);
  for (double& x : finite) x = -std::fabs(x);
  CHECK(differing_exps(finite) == 0);
  std::vector<double> edges = {-0.0, 0.0, -INFINITY, -708.0, -709.0, 5e-324, -5e-324, 709.0};
  for (const double x : {-708.0, -709.0, 0.0}) {
    edges.push_back(std::nextafter(x, -1e4));
    edges.push_back(std::nextafter(x, 1e4));
  }
  edges.insert(edges.end(), {std::log(2.0) / 2, -std::log(2.0) / 2});
  CHECK(edges.size() % Lanes::kCount == 0);
  CHECK(differing_exps(edges) == 0);
}

TEST_CASE("log: of frexp's exponent and mantissa, over three million numbers") {
  const auto from_mantissa = [](double x) {
    int exponent = 0;
    const double m = std::frexp(x, &exponent);
    return std::log(m) + exponent * std::log(2.0);
  };
  double worst = 0.0;
  const auto check = [&](double x) {
    const double error = std::fabs(canonical_log(x) - from_mantissa(x));
    worst = std::max(worst, error / (1.0 + std::fabs(std::log(x))));
  };
  for (const double x : uniform(kMillion, 0.0, 2.0, 5)) check(x);
  for (double x : any_finite(2 * kMillion, 6)) {
    x = std::fabs(x);
    if (std::isnormal(x)) check(x);
  }
  for (const double x : {1.0, 0.5, 2.0, 0x1.6a09e667f3bcdp-1, 0x1p-1022, 0x1.fffffffffffffp1023}) {
    check(x);
  }
  CHECK(worst < 1e-15);
}

TEST_CASE("soft-cap: the same bits over three million numbers") {
  CHECK(differing_softcaps(uniform(kMillion, -200.0, 200.0, 7), 50.0) == 0);
  CHECK(differing_softcaps(uniform(kMillion, -1e-6, 1e-6, 8), 2.0) == 0);
  CHECK(differing_softcaps(any_finite(kMillion, 9), 30.0) == 0);
  const std::vector<double> edges = {0.0, -0.0, 1e308, -1e308, 5e-324, -5e-324, 30.0, -30.0};
  CHECK(differing_softcaps(edges, 30.0) == 0);
  for (const double cap : {129.0, 1e4, 1e20, 1.7e308}) {
    CHECK(differing_softcaps(uniform(kMillion / 4, -1000.0, 1000.0, 10), cap) == 0);
    CHECK(differing_softcaps(any_finite(kMillion / 4, 11), cap) == 0);
    CHECK(differing_softcaps(edges, cap) == 0);
  }
}

TEST_CASE("soft-cap: within its error of cap tanh(x / cap) for every cap, however large") {
  for (const SoftcapValue& value : kSoftcapValues) {
    CAPTURE(value.x);
    CAPTURE(value.cap);
    const double capped = canonical_softcap(value.x, value.cap);
    CHECK(std::fabs(capped - value.capped) <= 2e-15 * std::fabs(value.capped));
  }
  double worst = 0.0;
  for (const double cap : {0.5, 2.0, 30.0, 50.0, kLargestPlainCap}) {
    for (const double x : uniform(kMillion / 4, -10.0 * cap, 10.0 * cap, 12)) {
      const long double capped = cap * std::tanh(static_cast<long double>(x) / cap);
      const long double error = std::fabs(canonical_softcap(x, cap) - capped) / cap;
      worst = std::max(worst, static_cast<double>(error));
    }
  }
  CHECK(worst < 4e-16);
}

TEST_CASE("soft-cap: one that is far above the logits changes no bit of them") {
  int changed = 0;
  for (const double x : uniform(kMillion, -100.0, 100.0, 13)) {
    for (const double cap : {1e10, 1e30, 3.4028234663852886e38, 1e300}) {
      changed += bits(canonical_softcap(x, cap)) != bits(x);
    }
  }
  CHECK(changed == 0);
}

TEST_CASE("soft-cap: those of models have the bits of the plain formula") {
  int changed = 0;
  for (const double cap : {1e-3, 2.0, 15.0, 30.0, 50.0, 100.0, kLargestPlainCap}) {
    for (const double x : uniform(kMillion / 4, -3.0 * cap, 3.0 * cap, 14)) {
      const double e = canonical_exp(-2.0 * std::fabs(x / cap));
      const double plain = cap * std::copysign((1.0 - e) / (1.0 + e), x);
      changed += bits(canonical_softcap(x, cap)) != bits(plain);
    }
  }
  CHECK(changed == 0);
}

TEST_CASE("sums over lanes: the same bits") {
  std::mt19937_64 rng(10);
  std::normal_distribution<double> normal;
  int count = 0;
  for (int round = 0; round < 20000; ++round) {
    double x[Lanes::kCount];
    for (double& each : x) each = normal(rng) * std::exp(8 * normal(rng));
    count += bits(Lanes::load(x).sum()) != bits(lanes_sum(x));
  }
  CHECK(count == 0);
}

TEST_CASE("noise: made of Random's draws, over three million places") {
  using Kind = LogitNoise::Kind;
  std::mt19937_64 rng(11);
  const CounterRng random(3, 17, "test/noise");
  for (const bool per_row : {false, true}) {
    const LogitNoise gumbel = {Kind::kGumbel, per_row, random.key()};
    const LogitNoise gaussian = {Kind::kGaussian, per_row, random.key()};
    int count = 0;
    for (int i = 0; i < 3 * kMillion / 4; ++i) {
      const auto token = static_cast<std::uint32_t>(rng() >> 33);
      const auto row = static_cast<std::uint32_t>(rng() >> 33);
      const auto head = static_cast<std::uint32_t>(rng() % 64);
      const double u = random.uniform53(token, head, per_row ? row + 1 : 0);
      count += bits(-canonical_log(-canonical_log(u))) != bits(gumbel.draw(head, row, token));
      count += bits(std::fma(kGumbelDeviation, normal_quantile(u), kGumbelMean)) !=
               bits(gaussian.draw(head, row, token));
    }
    CHECK(count == 0);
    const LogitNoise none = {Kind::kNone, per_row, random.key()};
    const LogitNoise constant = {Kind::kConstant, per_row, random.key()};
    CHECK(none.draw(1, 2, 3) == 0.0);
    CHECK(constant.draw(1, 2, 3) == kGumbelMean);
  }
}

}  // namespace canonical_test
}  // namespace kvbench::test
