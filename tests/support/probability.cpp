#include "support/probability.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>

namespace kvbench::test {
namespace {

double log_binomial(std::int64_t k, std::int64_t n, double p) {
  const double dn = static_cast<double>(n);
  const double dk = static_cast<double>(k);
  if (p <= 0.0) return k == 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  if (p >= 1.0) return k == n ? 0.0 : -std::numeric_limits<double>::infinity();
  return std::lgamma(dn + 1) - std::lgamma(dk + 1) - std::lgamma(dn - dk + 1) + dk * std::log(p) +
         (dn - dk) * std::log1p(-p);
}

}  // namespace

double upper_gamma(double a, double x) {
  if (x <= 0.0) return 1.0;
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1.0) {  // power series of the lower function
    double term = 1.0 / a;
    double sum = term;
    for (double k = a + 1.0; term > sum * 1e-17; k += 1.0) sum += term *= x / k;
    return 1.0 - front * sum;
  }
  // Legendre's continued fraction, evaluated forward by Lentz's rule.
  const double tiny = 1e-300;
  double b = x + 1.0 - a;
  double c = 1.0 / tiny;
  double d = 1.0 / b;
  double h = d;
  for (int i = 1; i < 100000; ++i) {
    const double an = -i * (i - a);
    b += 2.0;
    d = an * d + b;
    c = b + an / c;
    d = 1.0 / (std::fabs(d) < tiny ? tiny : d);
    c = std::fabs(c) < tiny ? tiny : c;
    h *= d * c;
    if (std::fabs(d * c - 1.0) < 1e-15) break;
  }
  return front * h;
}

double chi_square_tail(double statistic, double freedom) {
  return upper_gamma(0.5 * freedom, 0.5 * statistic);
}

double normal_two_sided(double z) { return std::erfc(std::fabs(z) / std::sqrt(2.0)); }

double normal_upper(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

double student_two_sided(double t, double freedom) {
  // With t = sqrt(freedom) tan(a), the density is proportional to cos(a)^(freedom - 1).
  const double first = std::atan(std::fabs(t) / std::sqrt(freedom));
  const double last = 0.5 * std::numbers::pi;
  const int steps = 20000;
  const double width = (last - first) / steps;
  double sum = 0.0;
  for (int i = 0; i <= steps; ++i) {  // Simpson's rule
    const double weight = i == 0 || i == steps ? 1.0 : i % 2 == 1 ? 4.0 : 2.0;
    sum += weight * std::pow(std::cos(first + i * width), freedom - 1.0);
  }
  const double norm = std::exp(std::lgamma(0.5 * (freedom + 1.0)) - std::lgamma(0.5 * freedom)) /
                      std::sqrt(std::numbers::pi);
  return std::min(1.0, 2.0 * norm * sum * width / 3.0);
}

double binomial_two_sided(std::int64_t k, std::int64_t n, double p) {
  const double limit = log_binomial(k, n, p) + 1e-9;
  double sum = 0.0;
  for (std::int64_t i = 0; i <= n; ++i) {
    const double l = log_binomial(i, n, p);
    if (l <= limit) sum += std::exp(l);
  }
  return std::min(1.0, sum);
}

double binomial_tail(std::int64_t k, std::int64_t n, double p) {
  double sum = 0.0;
  for (std::int64_t i = k; i <= n; ++i) sum += std::exp(log_binomial(i, n, p));
  return std::min(1.0, sum);
}

double goodness_of_fit(const std::vector<std::int64_t>& observed,
                       const std::vector<double>& probabilities) {
  const double total =
      static_cast<double>(std::accumulate(observed.begin(), observed.end(), std::int64_t{0}));
  std::vector<double> counts;
  std::vector<double> expected;
  double count = 0.0;
  double expect = 0.0;
  for (std::size_t i = 0; i < observed.size(); ++i) {
    if (probabilities[i] <= 0.0 && observed[i] > 0) return 0.0;
    count += static_cast<double>(observed[i]);
    expect += total * probabilities[i];
    if (expect >= 50.0) {
      counts.push_back(count);
      expected.push_back(expect);
      count = expect = 0.0;
    }
  }
  if (expected.size() < 2) throw std::invalid_argument("too few draws for a chi-square test");
  counts.back() += count;
  expected.back() += expect;
  double statistic = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double difference = counts[i] - expected[i];
    statistic += difference * difference / expected[i];
  }
  return chi_square_tail(statistic, static_cast<double>(counts.size() - 1));
}

double mean_z(const std::vector<double>& samples, double expectation) {
  const double n = static_cast<double>(samples.size());
  double mean = 0.0;
  for (const double x : samples) mean += x / n;
  double variance = 0.0;
  double third = 0.0;
  for (const double x : samples) {
    variance += (x - mean) * (x - mean) / (n - 1.0);
    third += std::pow(x - mean, 3) / n;
  }
  const double off = mean - expectation;
  if (off == 0.0) return 0.0;
  if (variance == 0.0) return std::copysign(std::numeric_limits<double>::infinity(), off);
  const double ratio = off / std::sqrt(variance);
  const double skew = third / std::pow(variance, 1.5);
  return std::sqrt(n) *
             (ratio + skew * ratio * ratio / 3.0 + skew * skew * std::pow(ratio, 3) / 27.0) +
         skew / (6.0 * std::sqrt(n));
}

}  // namespace kvbench::test
