#include "statistical/log_log_slope.hpp"

#include <cmath>

namespace kvbench::test {

Slope log_log_slope(const std::vector<double>& sizes,
                    const std::vector<std::vector<double>>& squares) {
  const double points = static_cast<double>(sizes.size());
  double centre = 0.0;
  for (const double size : sizes) centre += std::log(size) / points;
  double norm = 0.0;
  for (const double size : sizes) norm += std::pow(std::log(size) - centre, 2);
  Slope out = {0.0, 0.0};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const double runs = static_cast<double>(squares[i].size());
    double mean = 0.0;
    for (const double x : squares[i]) mean += x / runs;
    double variance = 0.0;
    for (const double x : squares[i]) variance += (x - mean) * (x - mean) / (runs - 1.0);
    const double weight = (std::log(sizes[i]) - centre) / norm;
    out.slope += weight * 0.5 * std::log(mean);
    // Var(ln(mean) / 2) = Var(x) / (4 runs mean^2).
    out.standard_error += weight * weight * variance / (4.0 * runs * mean * mean);
  }
  out.standard_error = std::sqrt(out.standard_error);
  return out;
}

}  // namespace kvbench::test
