// The p-values themselves, against published and exactly computable numbers.
#include "support/probability.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>

namespace kvbench::test {

TEST_CASE("chi-square tails: closed forms and table values") {
  // 2 degrees of freedom: exp(-x/2); 1: erfc(sqrt(x/2)).
  for (const double x : {0.01, 0.5, 1.0, 3.0, 10.0, 40.0, 120.0}) {
    CHECK(chi_square_tail(x, 2) == doctest::Approx(std::exp(-x / 2)).epsilon(1e-12));
    CHECK(chi_square_tail(x, 1) == doctest::Approx(std::erfc(std::sqrt(x / 2))).epsilon(1e-11));
    // 4: exp(-x/2) (1 + x/2); 6: exp(-x/2) (1 + x/2 + x^2/8).
    CHECK(chi_square_tail(x, 4) == doctest::Approx(std::exp(-x / 2) * (1 + x / 2)).epsilon(1e-12));
    CHECK(chi_square_tail(x, 6) ==
          doctest::Approx(std::exp(-x / 2) * (1 + x / 2 + x * x / 8)).epsilon(1e-12));
  }
  // Upper 5 % and 0.1 % points of the tables.
  CHECK(chi_square_tail(18.307, 10) == doctest::Approx(0.05).epsilon(1e-4));
  CHECK(chi_square_tail(43.773, 30) == doctest::Approx(0.05).epsilon(1e-4));
  CHECK(chi_square_tail(149.449, 100) == doctest::Approx(0.001).epsilon(1e-4));
  CHECK(chi_square_tail(0.0, 7) == 1.0);
}

TEST_CASE("normal and binomial tails") {
  CHECK(normal_two_sided(1.959963984540054) == doctest::Approx(0.05).epsilon(1e-12));
  CHECK(normal_two_sided(-5.0) == doctest::Approx(5.733031437583878e-07).epsilon(1e-10));
  CHECK(normal_upper(1.6448536269514722) == doctest::Approx(0.05).epsilon(1e-12));
  CHECK(normal_upper(-1.6448536269514722) == doctest::Approx(0.95).epsilon(1e-12));
  // Two heads or fewer of ten, or eight or more: 112 / 1024.
  CHECK(binomial_two_sided(2, 10, 0.5) == doctest::Approx(112.0 / 1024).epsilon(1e-12));
  CHECK(binomial_two_sided(5, 10, 0.5) == doctest::Approx(1.0).epsilon(1e-12));
  CHECK(binomial_tail(9, 10, 0.5) == doctest::Approx(11.0 / 1024).epsilon(1e-12));
  CHECK(binomial_tail(0, 10, 0.3) == doctest::Approx(1.0).epsilon(1e-12));
  // 15 failures of 300 at a promised 0.01 are rarer than one in a million, 14 are not; 29 of 1000
  // likewise.
  CHECK(binomial_tail(15, 300, 0.01) < 1e-6);
  CHECK(binomial_tail(14, 300, 0.01) > 1e-6);
  CHECK(binomial_tail(29, 1000, 0.01) < 1e-6);
  CHECK(binomial_tail(28, 1000, 0.01) > 1e-6);
}

TEST_CASE("Student's tails: closed forms and table values") {
  for (const double t : {0.0, 0.3, 1.0, 5.0, 40.0}) {
    CHECK(student_two_sided(t, 1) ==
          doctest::Approx(1.0 - 2.0 * std::atan(t) / std::numbers::pi).epsilon(1e-9));
    CHECK(student_two_sided(-t, 2) ==
          doctest::Approx(1.0 - t / std::sqrt(2.0 + t * t)).epsilon(1e-9));
  }
  CHECK(student_two_sided(2.0452, 29) == doctest::Approx(0.05).epsilon(1e-3));
  CHECK(student_two_sided(3.6594, 29) == doctest::Approx(0.001).epsilon(1e-3));
}

TEST_CASE("goodness of fit: zero cells, merging, and too few draws") {
  CHECK(goodness_of_fit({500, 500, 1}, {0.5, 0.5, 0.0}) == 0.0);
  // 480 and 520 of 1000: x^2 = 1.6.
  CHECK(goodness_of_fit({480, 520}, {0.5, 0.5}) ==
        doctest::Approx(chi_square_tail(1.6, 1)).epsilon(1e-12));
  // Cells of 25 each are merged in pairs.
  CHECK(goodness_of_fit({30, 30, 20, 20}, {0.25, 0.25, 0.25, 0.25}) ==
        doctest::Approx(chi_square_tail(4.0, 1)).epsilon(1e-12));
  CHECK_THROWS_AS(goodness_of_fit({20, 20}, {0.5, 0.5}), std::invalid_argument);
}

TEST_CASE("p-values of honest draws are uniform enough") {
  std::mt19937_64 rng(4);
  int below_a_tenth = 0;
  for (int run = 0; run < 2000; ++run) {
    std::vector<std::int64_t> counts(8, 0);
    for (int draw = 0; draw < 800; ++draw) ++counts[rng() % 8];
    below_a_tenth += goodness_of_fit(counts, std::vector<double>(8, 0.125)) < 0.1 ? 1 : 0;
  }
  // Binomial(2000, 0.1): seven standard deviations.
  CHECK(std::abs(below_a_tenth - 200) < 7 * std::sqrt(2000 * 0.09));
}

TEST_CASE("z of a mean") {
  CHECK(mean_z({1, 1, 1}, 1.0) == 0.0);
  // Mean 2, variance 1, three samples: (2 - 1) / sqrt(1/3).
  CHECK(mean_z({1, 2, 3}, 1.0) == doctest::Approx(std::sqrt(3.0)).epsilon(1e-14));
  CHECK(normal_two_sided(mean_z({2, 2, 2}, 1.0)) == 0.0);
}

TEST_CASE("z of the mean of squares is normal out into both tails; Student's ratio is not") {
  std::mt19937_64 rng(5);
  std::normal_distribution<double> normal;
  const int runs = 40000;
  int above = 0;
  int below = 0;
  int ratio_below = 0;
  for (int run = 0; run < runs; ++run) {
    std::vector<double> squares(400);
    double mean = 0.0;
    for (double& x : squares) {
      x = std::pow(normal(rng), 2);
      mean += x / 400.0;
    }
    double variance = 0.0;
    for (const double x : squares) variance += (x - mean) * (x - mean) / 399.0;
    const double z = mean_z(squares, 1.0);
    above += z > 3.0 ? 1 : 0;
    below += z < -3.0 ? 1 : 0;
    ratio_below += (mean - 1.0) / std::sqrt(variance / 400.0) < -3.0 ? 1 : 0;
  }
  const double expected = runs * normal_upper(3.0);  // 54
  CHECK(std::abs(above - expected) < 4.0 * std::sqrt(expected));
  CHECK(std::abs(below - expected) < 4.0 * std::sqrt(expected));
  CHECK(ratio_below > 2.0 * expected);
}

}  // namespace kvbench::test
