#include "check/binomial.hpp"

#include <algorithm>
#include <cmath>

namespace kvbench {
namespace {

double probability(Index k, Index n, double p) {
  const double dk = k;
  const double dn = n;
  return std::exp(std::lgamma(dn + 1.0) - std::lgamma(dk + 1.0) - std::lgamma(dn - dk + 1.0) +
                  dk * std::log(p) + (dn - dk) * std::log1p(-p));
}

constexpr double kNegligible = 1e-18;

}  // namespace

// Sums on the side of k that holds less than about half of the mass, away from the mode, where the
// terms fall.
double binomial_upper_tail(Index k, Index n, double p) {
  if (k <= 0) return 1.0;
  if (k > n || p <= 0.0) return 0.0;
  if (p >= 1.0) return 1.0;
  const double odds = p / (1.0 - p);
  double sum = 0.0;
  if (k > n * p) {
    double term = probability(k, n, p);
    for (Index i = k; i <= n && term > kNegligible * sum; ++i) {
      sum += term;
      term *= odds * (n - i) / (i + 1);
    }
    return std::min(1.0, sum);
  }
  double term = probability(k - 1, n, p);
  for (Index i = k - 1; i >= 0 && term > kNegligible * sum; --i) {
    sum += term;
    term *= i / (odds * (n - i + 1));
  }
  return std::max(0.0, 1.0 - sum);
}

double clopper_pearson_lower(Index k, Index n, double alpha) {
  if (k <= 0) return 0.0;
  double low = 0.0;
  double high = 1.0;
  for (int step = 0; step < 200; ++step) {
    const double middle = 0.5 * (low + high);
    if (middle <= low || middle >= high) break;
    (binomial_upper_tail(k, n, middle) < alpha ? low : high) = middle;
  }
  return low;
}

}  // namespace kvbench
