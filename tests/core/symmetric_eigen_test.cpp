// Eigenvalues and eigenvectors: worked, and their defining equations on random matrices.
#include "numerics/symmetric_eigen.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

namespace kvbench {
namespace symmetric_eigen_test {

using Real = long double;

// The largest of |A v - lambda v|, |<v_i, v_j> - (i == j)| and of what ascends.
double off(const std::vector<double>& a, std::size_t d, const SymmetricEigen& eigen) {
  Real worst = 0;
  for (std::size_t i = 0; i < d; ++i) {
    if (i > 0) worst = std::max<Real>(worst, eigen.values[i] - eigen.values[i - 1]);
    for (std::size_t r = 0; r < d; ++r) {
      Real sum = -static_cast<Real>(eigen.values[i]) * eigen.vectors[i][r];
      for (std::size_t c = 0; c < d; ++c) {
        sum += static_cast<Real>(a[r * d + c]) * eigen.vectors[i][c];
      }
      worst = std::max(worst, std::fabs(sum));
    }
    for (std::size_t j = 0; j < d; ++j) {
      Real dot = i == j ? -1 : 0;
      for (std::size_t c = 0; c < d; ++c) {
        dot += static_cast<Real>(eigen.vectors[i][c]) * eigen.vectors[j][c];
      }
      worst = std::max(worst, std::fabs(dot));
    }
  }
  return static_cast<double>(worst);
}

TEST_CASE("eigenvalues, worked: a plane, a diagonal and zero") {
  const SymmetricEigen plane = symmetric_eigen({2, 1, 1, 2}, 2);
  CHECK(plane.values[0] == doctest::Approx(3));
  CHECK(plane.values[1] == doctest::Approx(1));
  CHECK(std::fabs(plane.vectors[0][0] - plane.vectors[0][1]) < 1e-15);
  const SymmetricEigen diagonal = symmetric_eigen({1, 0, 0, 0, 5, 0, 0, 0, -2}, 3);
  CHECK(diagonal.values == std::vector<double>{5, 1, -2});
  CHECK(diagonal.vectors[0] == std::vector<double>{0, 1, 0});
  CHECK(symmetric_eigen({0, 0, 0, 0}, 2).values == std::vector<double>{0, 0});
  CHECK(symmetric_eigen({7}, 1).values == std::vector<double>{7});
}

TEST_CASE("eigenvalues and vectors keep A v = lambda v and are orthonormal") {
  std::mt19937_64 rng(2);
  std::normal_distribution<double> normal;
  for (const std::size_t d : {2, 5, 33, 64}) {
    for (const std::size_t rank : {std::size_t{1}, d / 2 + 1, 3 * d}) {
      std::vector<double> a(d * d, 0.0);
      for (std::size_t n = 0; n < rank; ++n) {
        std::vector<double> x(d);
        for (double& each : x) each = normal(rng);
        for (std::size_t r = 0; r < d; ++r) {
          for (std::size_t c = 0; c < d; ++c) a[r * d + c] += x[r] * x[c];
        }
      }
      CAPTURE(d);
      CAPTURE(rank);
      const SymmetricEigen eigen = symmetric_eigen(a, static_cast<Index>(d));
      CHECK(off(a, d, eigen) < 1e-12 * static_cast<double>(d));
      // A wrong vector is seen.
      SymmetricEigen wrong = eigen;
      wrong.vectors[0][0] += 1e-9;
      CHECK(off(a, d, wrong) > 1e-12 * static_cast<double>(d));
    }
  }
}

TEST_CASE("huge and tiny matrices have the eigenvectors of their multiples") {
  const std::vector<double> a{2, 1, 0, 1, 3, -1, 0, -1, 1};
  const SymmetricEigen plain = symmetric_eigen(a, 3);
  for (const double scale : {0x1p600, 0x1p-600}) {
    std::vector<double> scaled = a;
    for (double& x : scaled) x *= scale;
    const SymmetricEigen eigen = symmetric_eigen(scaled, 3);
    CHECK(eigen.vectors == plain.vectors);
    for (std::size_t k = 0; k < 3; ++k) CHECK(eigen.values[k] == plain.values[k] * scale);
  }
}

}  // namespace symmetric_eigen_test
}  // namespace kvbench
