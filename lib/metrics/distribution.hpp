// Distribution of a metric's values over rows and query heads, as a cell keeps it.
#pragma once

#include <array>
#include <vector>

namespace kvbench {

struct Distribution {
  double mean = 0.0;
  double median = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};

// Its numbers by their names in results.json, in their order there.
struct DistributionNumber {
  const char* name;
  double Distribution::* number;
};
inline constexpr std::array<DistributionNumber, 5> kDistributionNumbers = {{
    {"mean", &Distribution::mean},
    {"median", &Distribution::median},
    {"p90", &Distribution::p90},
    {"p99", &Distribution::p99},
    {"max", &Distribution::max},
}};

// Linear interpolation between order statistics (numpy's default). `values` must not be empty. The
// mean is infinite only if it is too large for a double, not if the sum is.
Distribution distribution(std::vector<double> values);

// Root of the mean of squares; infinite only if it is too large for a double, not if a square is.
// `values` must not be empty.
double root_mean_square(const std::vector<double>& values);

}  // namespace kvbench
