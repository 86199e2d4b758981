// Quantiles against numpy's, to the bit.
#include "numerics/quantile.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kvbench::test {

TEST_CASE("quantiles have numpy's bits, where the plain rule a + f (b - a) has others too") {
  // numpy.quantile(values, level), numpy 2.4.
  struct Case {
    std::vector<double> values;
    double level;
    double expected;
  };
  const std::vector<Case> cases = {{{0.1, 0.2, 0.7, 1.1, 1.3}, 0.0, 0x1.999999999999ap-4},
                                   {{0.1, 0.2, 0.7, 1.1, 1.3}, 0.025, 0x1.c28f5c28f5c2ap-4},
                                   {{0.1, 0.2, 0.7, 1.1, 1.3}, 0.17, 0x1.5810624dd2f1bp-3},
                                   {{0.1, 0.2, 0.7, 1.1, 1.3}, 0.5, 0x1.6666666666666p-1},
                                   {{0.1, 0.2, 0.7, 1.1, 1.3}, 0.9, 0x1.3851eb851eb86p+0},
                                   {{0.1, 0.2, 0.7, 1.1, 1.3}, 1.0, 0x1.4cccccccccccdp+0},
                                   {{0.03, 0.22, 0.38, 0.54, 0.94}, 0.45, 0x1.645a1cac08313p-2},
                                   {{0.03, 0.24, 0.41, 0.59, 0.8}, 0.9, 0x1.6e978d4fdf3b7p-1},
                                   {{0.02, 0.08, 0.26, 0.67, 0.84}, 0.45, 0x1.cac083126e97ap-3},
                                   {{0.01, 0.11, 0.25, 0.62, 0.76}, 0.45, 0x1.c6a7ef9db22d1p-3},
                                   {{4.0}, 0.3, 4.0}};
  for (Case each : cases) {
    CAPTURE(each.level);
    CHECK(sorted_quantile(each.values, each.level) == each.expected);
    std::reverse(each.values.begin(), each.values.end());
    CHECK(reordering_quantile(each.values, each.level) == each.expected);
  }
}

TEST_CASE("reordering values gives the bits of sorting them") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> draw(-1.0, 1.0);
  for (const std::size_t count : {1, 2, 3, 10, 101, 1000}) {
    std::vector<double> values(count);
    for (double& value : values) value = draw(random);
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    for (const double level : {0.0, 0.025, 0.1, 0.37, 0.5, 0.9, 0.975, 0.99, 1.0}) {
      CHECK(reordering_quantile(values, level) == sorted_quantile(sorted, level));
    }
  }
}

}  // namespace kvbench::test
