#include "check/binomial.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "support/probability.hpp"

namespace kvbench::test {
namespace binomial_test {

TEST_CASE("binomial tails are the sums of their terms") {
  CHECK(binomial_upper_tail(8, 10, 0.5) == doctest::Approx(56.0 / 1024.0).epsilon(1e-13));
  CHECK(binomial_upper_tail(0, 10, 0.3) == 1.0);
  CHECK(binomial_upper_tail(11, 10, 0.3) == 0.0);
  CHECK(binomial_upper_tail(1, 10, 0.0) == 0.0);
  CHECK(binomial_upper_tail(10, 10, 1.0) == 1.0);
  CHECK(binomial_upper_tail(300, 300, 0.5) ==
        doctest::Approx(std::ldexp(1.0, -300)).epsilon(1e-10));
  for (const Index n : {1, 7, 50, 400}) {
    for (const double p : {1e-6, 0.01, 0.3, 0.5, 0.97}) {
      for (Index k = 0; k <= n; k += 1 + n / 9) {
        CAPTURE(n);
        CAPTURE(p);
        CAPTURE(k);
        CHECK(binomial_upper_tail(k, n, p) ==
              doctest::Approx(binomial_tail(k, n, p)).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("configs/README's example: 16 of 40 seeds above a limit that a tenth may exceed") {
  CHECK(binomial_upper_tail(16, 40, 0.1) == doctest::Approx(5.9e-7).epsilon(0.01));
  CHECK(binomial_upper_tail(15, 40, 0.1) == doctest::Approx(3.5e-6).epsilon(0.01));
}

TEST_CASE("tails of a million trials are exact, and quick") {
  // Normal approximation with continuity correction, 5 standard deviations out: good to 3 %.
  const double mean = 1e4;
  const double deviation = std::sqrt(1e4 * 0.99);
  const auto k = static_cast<Index>(std::lround(mean + 5.0 * deviation));
  const double z = (static_cast<double>(k) - 0.5 - mean) / deviation;
  CHECK(binomial_upper_tail(k, 1'000'000, 0.01) ==
        doctest::Approx(0.5 * std::erfc(z / std::sqrt(2.0))).epsilon(0.3));
  CHECK(binomial_upper_tail(10'000, 1'000'000, 0.01) == doctest::Approx(0.5).epsilon(0.02));
}

// Clopper and Pearson's own limits (any table of exact binomial limits has them).
TEST_CASE("lower confidence limits are those of the tables") {
  CHECK(clopper_pearson_lower(5, 10, 0.025) == doctest::Approx(0.1870860).epsilon(1e-6));
  CHECK(clopper_pearson_lower(8, 10, 0.025) == doctest::Approx(0.4439045).epsilon(1e-6));
  CHECK(clopper_pearson_lower(1, 100, 0.025) == doctest::Approx(0.000253146).epsilon(1e-5));
  CHECK(clopper_pearson_lower(0, 10, 0.025) == 0.0);
  CHECK(clopper_pearson_lower(20, 20, 1e-6) == doctest::Approx(std::pow(1e-6, 0.05)).epsilon(1e-9));
}

TEST_CASE("the failures that turn a promised rate red at 1e-6") {
  struct Row {
    Index seeds;
    Index at_one_percent;
    Index at_five_percent;
  };
  for (const Row& row : {Row{100, 9, 19}, Row{300, 15, 37}, Row{500, 20, 52}, Row{1000, 29, 87},
                         Row{2000, 45, 150}}) {
    CAPTURE(row.seeds);
    for (const auto& [promised, red] :
         {std::pair{0.01, row.at_one_percent}, std::pair{0.05, row.at_five_percent}}) {
      CHECK(binomial_upper_tail(red, row.seeds, promised) < 1e-6);
      CHECK(binomial_upper_tail(red - 1, row.seeds, promised) >= 1e-6);
      CHECK(clopper_pearson_lower(red, row.seeds, 1e-6) > promised);
      CHECK(clopper_pearson_lower(red - 1, row.seeds, 1e-6) <= promised);
    }
  }
}

}  // namespace binomial_test
}  // namespace kvbench::test
