// The scalar arithmetic that devices use has the bits of lib/core's.
#include "core/canonical_scalar.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "core/canonical.hpp"
#include "core/logit_draw.hpp"
#include "core/logit_noise.hpp"

namespace kvbench::test {
namespace {

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
  std::vector<double> out(static_cast<std::size_t>(count));
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
      x, [](Lanes v) { return canonical_exp(v); },
      [](double v) { return scalar::canonical_exp(v); });
}

int differing_softcaps(const std::vector<double>& x, double cap) {
  return differing(
      x, [&](Lanes v) { return canonical_softcap(v, cap); },
      [&](double v) { return scalar::canonical_softcap(v, cap); });
}

}  // namespace

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

TEST_CASE("log: the same bits over three million numbers") {
  int count = 0;
  for (const double x : uniform(kMillion, 0.0, 2.0, 5)) {
    count += bits(canonical_log(x)) != bits(scalar::canonical_log(x));
  }
  for (double x : any_finite(2 * kMillion, 6)) {
    x = std::fabs(x);
    if (!std::isnormal(x)) continue;
    count += bits(canonical_log(x)) != bits(scalar::canonical_log(x));
  }
  for (const double x : {1.0, 0.5, 2.0, 0x1.6a09e667f3bcdp-1, 0x1p-1022, 0x1.fffffffffffffp1023}) {
    count += bits(canonical_log(x)) != bits(scalar::canonical_log(x));
  }
  CHECK(count == 0);
}

TEST_CASE("soft-cap: the same bits over three million numbers") {
  CHECK(differing_softcaps(uniform(kMillion, -200.0, 200.0, 7), 50.0) == 0);
  CHECK(differing_softcaps(uniform(kMillion, -1e-6, 1e-6, 8), 2.0) == 0);
  CHECK(differing_softcaps(any_finite(kMillion, 9), 30.0) == 0);
  CHECK(differing_softcaps({0.0, -0.0, 1e308, -1e308, 5e-324, -5e-324, 30.0, -30.0}, 30.0) == 0);
}

TEST_CASE("dot products, distances and sums over lanes: the same bits, length by length") {
  std::mt19937_64 rng(10);
  std::normal_distribution<double> normal;
  int count = 0;
  for (int round = 0; round < 20000; ++round) {
    const Index d = 1 + round % 260;
    std::vector<double> a(static_cast<std::size_t>(d));
    std::vector<double> b(a.size());
    for (double& x : a) x = normal(rng) * std::exp(8 * normal(rng));
    for (double& x : b) x = normal(rng) * std::exp(8 * normal(rng));
    count += bits(canonical_dot(a.data(), b.data(), d)) !=
             bits(scalar::chain<scalar::DotStep>(a.data(), b.data(), d));
    count += bits(squared_distance(a.data(), b.data(), d)) !=
             bits(scalar::chain<scalar::DistanceStep>(a.data(), b.data(), d));
    count += bits(squared_distance(b.data(), a.data(), d)) !=
             bits(scalar::chain<scalar::DistanceStep>(a.data(), b.data(), d));
    if (d >= Lanes::kCount) {
      count += bits(Lanes::load(a.data()).sum()) != bits(scalar::lanes_sum(a.data()));
    }
  }
  CHECK(count == 0);
}

TEST_CASE("noise: what Random and canonical.hpp give, over three million places") {
  using Kind = LogitNoise::Kind;
  std::mt19937_64 rng(11);
  const Random random(3, 17, "test/noise");
  for (const bool per_row : {false, true}) {
    const LogitDraw gumbel = logit_draw({Kind::kGumbel, per_row, random});
    const LogitDraw gaussian = logit_draw({Kind::kGaussian, per_row, random});
    int count = 0;
    for (int i = 0; i < 3 * kMillion / 4; ++i) {
      const auto token = static_cast<std::uint32_t>(rng() >> 33);
      const auto row = static_cast<std::uint32_t>(rng() >> 33);
      const auto head = static_cast<std::uint32_t>(rng() % 64);
      const double u = random.uniform53(token, head, per_row ? row + 1 : 0);
      count += bits(-canonical_log(-canonical_log(u))) != bits(gumbel(head, row, token));
      count += bits(std::fma(kGumbelDeviation, normal_quantile(u), kGumbelMean)) !=
               bits(gaussian(head, row, token));
    }
    CHECK(count == 0);
    CHECK(logit_draw({Kind::kNone, per_row, random})(1, 2, 3) == 0.0);
    CHECK(logit_draw({Kind::kConstant, per_row, random})(1, 2, 3) == kGumbelMean);
  }
}

}  // namespace kvbench::test
