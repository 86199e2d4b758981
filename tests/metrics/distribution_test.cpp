// Quantiles of distributions are numpy's.
#include "metrics/distribution.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "support/naive_metrics.hpp"

namespace kvbench::test {

TEST_CASE("quantiles interpolate linearly between order statistics") {
  // numpy.quantile([1, 2, 4, 8], [.5, .9, .99]) = 3, 6.8, 7.88
  const Distribution d = distribution({8, 1, 4, 2});
  CHECK(d.mean == doctest::Approx(3.75).epsilon(1e-15));
  CHECK(d.median == doctest::Approx(3.0).epsilon(1e-15));
  CHECK(d.p90 == doctest::Approx(6.8).epsilon(1e-14));
  CHECK(d.p99 == doctest::Approx(7.88).epsilon(1e-14));
  CHECK(d.max == 8.0);
}

TEST_CASE("one value is every quantile of itself") {
  const Distribution d = distribution({0.3});
  for (const double q : {d.mean, d.median, d.p90, d.p99, d.max}) CHECK(q == 0.3);
}

TEST_CASE("root mean squares of large, small and no values") {
  CHECK(root_mean_square({3.0, 4.0}) == doctest::Approx(std::sqrt(12.5)).epsilon(1e-15));
  CHECK(root_mean_square({3e200, 4e200}) == doctest::Approx(std::sqrt(12.5) * 1e200));
  CHECK(root_mean_square({3e-200, 4e-200}) == doctest::Approx(std::sqrt(12.5) * 1e-200));
  CHECK(root_mean_square({0.0, 0.0}) == 0.0);
}

TEST_CASE("distributions of random samples agree with sorting and interpolating") {
  std::mt19937_64 rng(5);
  std::lognormal_distribution<double> lognormal;
  for (const std::size_t size : {2U, 3U, 10U, 11U, 100U, 101U, 997U}) {
    std::vector<double> values(size);
    for (double& v : values) v = lognormal(rng);
    const Distribution d = distribution(values);
    CHECK(d.median == doctest::Approx(naive_quantile(values, 0.5)).epsilon(1e-14));
    CHECK(d.p90 == doctest::Approx(naive_quantile(values, 0.9)).epsilon(1e-14));
    CHECK(d.p99 == doctest::Approx(naive_quantile(values, 0.99)).epsilon(1e-14));
    CHECK(d.max == naive_quantile(values, 1.0));
    double sum = 0.0;
    for (const double v : values) sum += v;
    CHECK(d.mean == doctest::Approx(sum / static_cast<double>(size)).epsilon(1e-14));
  }
}

}  // namespace kvbench::test
