#include "kernels/distance_quantile.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "numerics/quantile.hpp"

namespace kvbench {
namespace distance_quantile_test {

TEST_CASE("sorted quantiles interpolate linearly between order statistics") {
  const std::vector<double> x = {1.0, 2.0, 4.0, 8.0};
  CHECK(sorted_quantile(x, 0.0) == 1.0);
  CHECK(sorted_quantile(x, 1.0) == 8.0);
  CHECK(sorted_quantile(x, 0.5) == 3.0);                         // halfway from 2 to 4
  CHECK(sorted_quantile(x, 0.9) == doctest::Approx(6.8));        // position 2.7
  CHECK(sorted_quantile(x, 1.0 / 3.0) == doctest::Approx(2.0));  // position 1
  CHECK(sorted_quantile({5.0}, 0.3) == 5.0);
}

TEST_CASE("few rows: every pair counts") {
  const std::vector<double> x = {0.0, 0.0, 3.0, 4.0, 0.0, 1.0};  // distances 5, 1, sqrt(18)
  const ConstMatrix points(x.data(), 3, 2);
  CHECK(distance_quantile(points, 0.0) == 1.0);
  CHECK(distance_quantile(points, 0.5) == doctest::Approx(4.242640687119285).epsilon(1e-15));
  CHECK(distance_quantile(points, 0.25) == doctest::Approx(2.6213203435596424).epsilon(1e-15));
  CHECK(distance_quantile(points, 1.0) == 5.0);
}

TEST_CASE("fewer than two rows have distance 0") {
  const std::vector<double> x = {3.0, 4.0};
  CHECK(distance_quantile(ConstMatrix(x.data(), 0, 2), 0.5) == 0.0);
  CHECK(distance_quantile(ConstMatrix(x.data(), 1, 2), 0.5) == 0.0);
}

TEST_CASE("many rows: only floor(m n / 128) are sampled") {
  // Points on a line at 0, except the sampled rows, which are at their sample number.
  constexpr Index kRows = 300;
  std::vector<double> x(kRows, 1e6);
  for (Index m = 0; m < 128; ++m) x[m * kRows / 128] = static_cast<double>(m);
  const ConstMatrix points(x.data(), kRows, 1);
  CHECK(distance_quantile(points, 0.0) == 1.0);
  CHECK(distance_quantile(points, 1.0) == 127.0);
  // 128 - k pairs have distance k; the 8128 pairs' median: the first k with k (255 - k) / 2 >
  // 4063.5
  CHECK(distance_quantile(points, 0.5) == 38.0);
}

TEST_CASE("a stride between rows is respected") {
  const std::vector<double> x = {0.0, 9.0, 1.0, 7.0, 3.0, 5.0};
  const ConstMatrix points(x.data(), 3, 1, 2);
  CHECK(distance_quantile(points, 1.0) == 3.0);
  CHECK(distance_quantile(points, 0.5) == 2.0);
}

}  // namespace distance_quantile_test
}  // namespace kvbench
