#include "numerics/symmetric_eigen.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "numerics/canonical.hpp"

namespace kvbench {
namespace {

constexpr int kMaxSweeps = 60;  // about ten are made

// Rows of x turn: p' = c p - s q, q' = s p + c q.
void turn_rows(double* p, double* q, Index d, double c, double s) {
  for (Index k = 0; k < d; ++k) {
    const double old = p[k];
    p[k] = c * old - s * q[k];
    q[k] = s * old + c * q[k];
  }
}

// The rotation of p and q that makes a[p][q] zero (Golub and Van Loan, 8.5.2).
void annihilate(std::vector<double>& a, std::vector<double>& vectors, Index d, Index p, Index q) {
  const double off = a[p * d + q];
  if (off == 0.0) return;
  const double tau = (a[q * d + q] - a[p * d + p]) / (2.0 * off);
  const double t = std::copysign(1.0, tau) / (std::fabs(tau) + std::sqrt(1.0 + tau * tau));
  const double c = 1.0 / std::sqrt(1.0 + t * t);
  const double s = t * c;
  for (Index k = 0; k < d; ++k) {
    double& kp = a[k * d + p];
    double& kq = a[k * d + q];
    const double old = kp;
    kp = c * old - s * kq;
    kq = s * old + c * kq;
  }
  turn_rows(a.data() + p * d, a.data() + q * d, d, c, s);
  a[p * d + q] = a[q * d + p] = 0.0;
  turn_rows(vectors.data() + p * d, vectors.data() + q * d, d, c, s);
}

}  // namespace

SymmetricEigen symmetric_eigen(std::vector<double> a, Index d) {
  // A power of two brings the largest number near 1, so that no square leaves the doubles.
  double most = 0.0;
  for (const double x : a) most = std::max(most, std::fabs(x));
  const int exponent = most > 0.0 ? std::ilogb(most) : 0;
  for (double& x : a) x = std::scalbn(x, -exponent);

  std::vector<double> vectors(a.size(), 0.0);  // rows
  for (Index k = 0; k < d; ++k) vectors[k * d + k] = 1.0;
  const double whole = canonical_dot(a.data(), a.data(), d * d);
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    double off = 0.0;
    for (Index p = 0; p < d; ++p) {
      for (Index q = p + 1; q < d; ++q) {
        const double x = a[p * d + q];
        off = fused(x, x, off);
      }
    }
    if (2.0 * off <= std::ldexp(whole, -104)) break;
    for (Index p = 0; p < d; ++p) {
      for (Index q = p + 1; q < d; ++q) annihilate(a, vectors, d, p, q);
    }
  }

  std::vector<Index> order(d);
  std::iota(order.begin(), order.end(), Index{0});
  const auto value = [&](Index k) { return a[k * d + k]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](Index x, Index y) { return value(x) > value(y); });
  SymmetricEigen out;
  for (const Index k : order) {
    out.values.push_back(std::scalbn(value(k), exponent));
    out.vectors.emplace_back(vectors.begin() + k * d, vectors.begin() + (k + 1) * d);
  }
  return out;
}

}  // namespace kvbench
