// Sines, cosines and angles against the library's in long double.
#include "numerics/canonical_angle.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <random>

namespace kvbench {

TEST_CASE("sine and cosine to 4e-16") {
  for (int i = -100000; i <= 100000; ++i) {
    const double x = i * 1e-3;
    const SineCosine found = canonical_sine_cosine(x);
    REQUIRE(std::fabs(found.sine - std::sin(static_cast<long double>(x))) < 4e-16L);
    REQUIRE(std::fabs(found.cosine - std::cos(static_cast<long double>(x))) < 4e-16L);
  }
  CHECK(canonical_sine_cosine(0.0).sine == 0.0);
  CHECK(canonical_sine_cosine(0.0).cosine == 1.0);
}

TEST_CASE("angles in [0, 2 pi] to 4e-16 of themselves") {
  std::mt19937_64 rng(5);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 200000; ++i) {
    // Some pairs have sizes far apart.
    const double x = normal(rng) * std::ldexp(1.0, i % 7 == 0 ? i % 60 : 0);
    const double y = normal(rng);
    const long double turn = y < 0 ? 2 * std::numbers::pi_v<long double> : 0;
    const long double angle =
        std::atan2(static_cast<long double>(y), static_cast<long double>(x)) + turn;
    REQUIRE(std::fabs(canonical_angle(x, y) - angle) <= 4e-16L * angle);
  }
}

TEST_CASE("angles of the axes, of the diagonal and of 0") {
  const double pi = std::numbers::pi;
  CHECK(canonical_angle(0, 0) == 0.0);
  CHECK(canonical_angle(3, 0) == 0.0);
  CHECK(canonical_angle(3, -0.0) == 0.0);
  CHECK(canonical_angle(0, 2) == pi / 2);
  CHECK(canonical_angle(-1, 0) == pi);
  CHECK(canonical_angle(0, -5) == 3 * pi / 2);
  CHECK(canonical_angle(2, 2) == pi / 4);
  CHECK(canonical_angle(1, -1e-30) == 2 * pi);  // rounded
}

}  // namespace kvbench
