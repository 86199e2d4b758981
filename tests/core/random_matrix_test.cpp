// Random matrices against another QR decomposition, and the Hadamard transform, worked.
#include "numerics/random_matrix.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "numerics/logit_noise.hpp"

namespace kvbench {
namespace random_matrix_test {

using Real = long double;

// Q of a = Q R with a positive diagonal of R, by Householder reflections, row-major.
std::vector<Real> householder_q(const std::vector<double>& a, std::size_t d) {
  std::vector<Real> r(a.begin(), a.end());
  std::vector<Real> q(d * d, 0);
  for (std::size_t i = 0; i < d; ++i) q[i * d + i] = 1;
  for (std::size_t j = 0; j < d; ++j) {
    std::vector<Real> v(d, 0);
    Real square = 0;
    for (std::size_t i = j; i < d; ++i) {
      v[i] = r[i * d + j];
      square += v[i] * v[i];
    }
    v[j] += std::copysign(std::sqrt(square), v[j]);
    Real size = 0;
    for (const Real x : v) size += x * x;
    for (std::size_t c = 0; c < d; ++c) {
      Real with_r = 0;  // products with a column of R and a row of Q
      Real with_q = 0;
      for (std::size_t i = 0; i < d; ++i) {
        with_r += v[i] * r[i * d + c];
        with_q += v[i] * q[c * d + i];
      }
      for (std::size_t i = 0; i < d; ++i) {
        r[i * d + c] -= 2 * v[i] * with_r / size;
        q[c * d + i] -= 2 * v[i] * with_q / size;
      }
    }
  }
  for (std::size_t j = 0; j < d; ++j) {
    if (r[j * d + j] > 0) continue;
    for (std::size_t i = 0; i < d; ++i) q[i * d + j] = -q[i * d + j];
  }
  return q;
}

const CounterRng kDraw(3, 77, "test/matrix");

TEST_CASE("a Haar matrix is Q of its normal matrix, as Householder reflections find it") {
  for (const Index d : {1, 2, 7, 64}) {
    const std::vector<double> q = haar_matrix(kDraw, d);
    const std::vector<Real> other =
        householder_q(normal_matrix(kDraw, d, d), static_cast<std::size_t>(d));
    Real worst = 0;
    for (std::size_t i = 0; i < q.size(); ++i) worst = std::max(worst, std::fabs(q[i] - other[i]));
    CHECK(worst < 1e-13L);
  }
}

TEST_CASE("elements are normal quantiles of the draws at (row, column, round)") {
  const std::vector<double> a = normal_matrix(kDraw, 3, 5);
  REQUIRE(a.size() == 15);
  CHECK(a[2 * 5 + 4] == normal_quantile(kDraw.uniform53(2, 4)));
  CHECK(normal_vector(kDraw, 5, 1, 6)[3] == normal_quantile(kDraw.uniform53(1, 3, 6)));
}

TEST_CASE("Haar matrices are orthonormal, and one below the other each of its own draws") {
  const Index d = 24;
  const std::vector<double> rows = stacked_haar_matrices(kDraw, 40, d);
  REQUIRE(rows.size() == 40 * 24);
  const auto dot = [&](Index i, Index j) {
    Real sum = 0;
    for (Index k = 0; k < d; ++k) {
      sum += static_cast<Real>(rows[i * d + k]) * rows[j * d + k];
    }
    return static_cast<double>(sum);
  };
  for (Index i = 0; i < d; ++i) {
    for (Index j = 0; j <= i; ++j) REQUIRE(std::fabs(dot(i, j) - (i == j ? 1.0 : 0.0)) < 1e-14);
  }
  const std::vector<double> second = haar_matrix(kDraw, d, 1);
  CHECK(std::equal(rows.begin() + 24 * 24, rows.end(), second.begin()));
  CHECK(std::fabs(dot(0, 24)) > 1e-3);
}

TEST_CASE("the Hadamard transform, worked, is symmetric and its own inverse") {
  std::vector<double> x = {1, 2, 3, 4};
  hadamard_transform(x.data(), 4);
  CHECK(x == std::vector<double>{5, -1, -2, 0});
  hadamard_transform(x.data(), 4);
  CHECK(x == std::vector<double>{1, 2, 3, 4});
  // Element (i, j) of the matrix is -1 to the number of bits that i and j share.
  const Index d = 32;
  for (Index j = 0; j < d; ++j) {
    std::vector<double> column(d, 0.0);
    column[j] = 1.0;
    hadamard_transform(column.data(), d);
    for (Index i = 0; i < d; ++i) {
      const bool is_odd = __builtin_popcountll(static_cast<unsigned long long>(i & j)) % 2 == 1;
      CHECK(column[i] == (is_odd ? -1.0 : 1.0) / std::sqrt(32.0));
    }
  }
}

TEST_CASE("powers of two") {
  CHECK(is_power_of_two(1));
  CHECK(is_power_of_two(128));
  CHECK_FALSE(is_power_of_two(0));
  CHECK_FALSE(is_power_of_two(96));
}

TEST_CASE("fair signs are 1 and -1, about as many of each") {
  const std::vector<double> signs = fair_signs(kDraw, 1000);
  REQUIRE(signs.size() == 1000);
  const auto plus = std::count(signs.begin(), signs.end(), 1.0);
  CHECK(plus + std::count(signs.begin(), signs.end(), -1.0) == 1000);
  CHECK(plus > 400);  // six standard deviations
  CHECK(plus < 600);
}

}  // namespace random_matrix_test
}  // namespace kvbench
