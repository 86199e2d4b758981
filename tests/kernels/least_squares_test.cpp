// Dense least squares: worked systems, elimination in long double, exact eigenvalues, and bits that
// depend neither on threads nor on blocks.
#include "kernels/least_squares.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "support/naive_matching.hpp"
#include "support/threads.hpp"

namespace kvbench::test {
namespace least_squares_test {

struct Matrix {
  Index rows;
  Index cols;
  std::vector<double> data;

  MutableMatrix view() { return {data.data(), rows, cols}; }
  ConstMatrix view() const { return {data.data(), rows, cols}; }
  RealRows real() const {
    RealRows out;
    for (Index r = 0; r < rows; ++r) {
      out.emplace_back(data.begin() + r * cols, data.begin() + (r + 1) * cols);
    }
    return out;
  }
};

Matrix zeros(Index rows, Index cols) {
  return {rows, cols, std::vector<double>(static_cast<std::size_t>(rows * cols), 0.0)};
}

Matrix gaussian(Index rows, Index cols, unsigned seed) {
  Matrix out = zeros(rows, cols);
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  for (double& x : out.data) x = normal(engine);
  return out;
}

Matrix gram_of(const Matrix& x) {
  Matrix out = zeros(x.cols, x.cols);
  add_gram(x.view(), out.view());
  return out;
}

TEST_CASE("a system of two worked by hand") {
  // [4 2; 2 5] + 4 I = [8 2; 2 9]; times (1, 2) is (12, 20).
  const Matrix a{2, 2, {4, 2, -77, 5}};  // the lower triangle is not read
  Matrix b{2, 1, {12, 20}};
  const auto factor = Cholesky::of(a.view(), 4.0);
  REQUIRE(factor);
  factor->solve(b.view());
  CHECK(b.data[0] == doctest::Approx(1).epsilon(1e-15));
  CHECK(b.data[1] == doctest::Approx(2).epsilon(1e-15));
}

TEST_CASE("half of a solution has the squared length b^T A^-1 b, column by column") {
  // [8 2; 2 9]: b^T A^-1 b of (12, 20) is (1, 2) (12, 20) = 52; of (8, 2) it is 8.
  const Matrix a{2, 2, {8, 2, 2, 9}};
  Matrix b{2, 2, {12, 8, 20, 2}};
  const auto factor = Cholesky::of(a.view(), 0.0);
  REQUIRE(factor);
  factor->solve_half(b.view());
  CHECK(b.data[0] * b.data[0] + b.data[2] * b.data[2] == doctest::Approx(52).epsilon(1e-15));
  CHECK(b.data[1] * b.data[1] + b.data[3] * b.data[3] == doctest::Approx(8).epsilon(1e-15));
}

TEST_CASE("the upper triangle becomes the lower one") {
  Matrix a{3, 3, {1, 2, 3, -7, 4, 5, -8, -9, 6}};
  mirror_upper(a.view());
  CHECK(a.data == std::vector<double>{1, 2, 3, 2, 4, 5, 3, 5, 6});
}

TEST_CASE("what is not positive definite has no factor") {
  const Matrix singular{2, 2, {1, 2, 0, 4}};
  CHECK(!Cholesky::of(singular.view(), 0.0));
  CHECK(Cholesky::of(singular.view(), 1e-3));
  const Matrix indefinite{2, 2, {1, 2, 0, 1}};
  CHECK(!Cholesky::of(indefinite.view(), 0.0));
  CHECK(!Cholesky::of(zeros(1, 1).view(), 0.0));
  const Matrix infinite{1, 1, {HUGE_VAL}};
  CHECK(!Cholesky::of(infinite.view(), 0.0));
}

TEST_CASE("least squares of every shape agree with elimination in long double") {
  for (const Index t : {1, 2, 3, 5, 17, 40}) {
    for (const Index m : {1, 3, 8}) {
      CAPTURE(t);
      CAPTURE(m);
      const Matrix x = gaussian(2 * t + 3, t, 1);
      const Matrix y = gaussian(2 * t + 3, m, 2);
      Matrix solution = zeros(t, m);
      add_product(x.view(), y.view(), solution.view());
      const auto factor = Cholesky::of(gram_of(x).view(), 0.01);
      REQUIRE(factor);
      factor->solve(solution.view());
      const RealRows naive = naive_least_squares(x.real(), y.real(), 0.01);
      Matrix fitted = zeros(x.rows, m);
      multiply(x.view(), solution.view(), fitted.view());
      for (Index i = 0; i < t; ++i) {
        for (Index k = 0; k < m; ++k) {
          const Real wanted = naive[i][k];
          CHECK(std::abs(solution.view()(i, k) - wanted) < 1e-12);
        }
      }
      for (Index r = 0; r < x.rows; ++r) {
        Real sum = 0;
        for (Index i = 0; i < t; ++i) sum += x.view()(r, i) * naive[i][0];
        CHECK(std::abs(fitted.view()(r, 0) - sum) < 1e-11);
      }
    }
  }
}

TEST_CASE("the largest eigenvalue of matrices whose eigenvalues are known") {
  CHECK(largest_eigenvalue(zeros(0, 0).view()) == 0.0);
  CHECK(largest_eigenvalue(zeros(3, 3).view()) == 0.0);
  CHECK(largest_eigenvalue(Matrix{1, 1, {7}}.view()) == doctest::Approx(7).epsilon(1e-15));
  // 2 on the diagonal, -1 next to it: 2 - 2 cos(k pi / (n + 1)); the two largest are close.
  for (const Index n : {2, 3, 10, 64}) {
    Matrix path = zeros(n, n);
    for (Index i = 0; i < n; ++i) {
      path.view()(i, i) = 2;
      if (i + 1 < n) path.view()(i, i + 1) = -1;
    }
    const double wanted =
        2 - 2 * std::cos(static_cast<double>(n) * M_PI / static_cast<double>(n + 1));
    CHECK(largest_eigenvalue(path.view()) == doctest::Approx(wanted).epsilon(1e-14));
  }
  // All ones: n; the identity, n times the same eigenvalue: 1.
  Matrix ones = zeros(30, 30);
  ones.data.assign(900, 1.0);
  CHECK(largest_eigenvalue(ones.view()) == doctest::Approx(30).epsilon(1e-14));
  Matrix identity = zeros(30, 30);
  for (Index i = 0; i < 30; ++i) identity.view()(i, i) = 1;
  CHECK(largest_eigenvalue(identity.view()) == doctest::Approx(1).epsilon(1e-15));
}

TEST_CASE("the largest eigenvalue of Gram matrices, whatever their scale") {
  for (const Index t : {2, 7, 33}) {
    for (const double scale : {1e-60, 1.0, 1e60}) {
      CAPTURE(t);
      CAPTURE(scale);
      Matrix x = gaussian(50, t, 3);
      for (double& each : x.data) each = std::abs(each) * scale;  // a gap, for the oracle
      const auto wanted = static_cast<double>(naive_top_eigenvalue(x.real()));
      CHECK(largest_eigenvalue(gram_of(x).view()) == doctest::Approx(wanted).epsilon(1e-13));
    }
  }
}

TEST_CASE("the largest eigenvalue of Gram matrices of columns that repeat") {
  // m columns r times each: r times the eigenvalue of the m. The rest of the others is rounding.
  for (const Index m : {1, 2, 5}) {
    for (const double scale : {1e-100, 1.0, 1e100}) {
      CAPTURE(m);
      CAPTURE(scale);
      Matrix few = gaussian(50, m, 3);
      for (double& each : few.data) each = std::abs(each) * scale;
      constexpr Index kTimes = 20;
      Matrix x = zeros(50, m * kTimes);
      for (Index r = 0; r < 50; ++r) {
        for (Index c = 0; c < m * kTimes; ++c) x.view()(r, c) = few.view()(r, c % m);
      }
      const auto wanted = kTimes * static_cast<double>(naive_top_eigenvalue(few.real()));
      CHECK(largest_eigenvalue(gram_of(x).view()) == doctest::Approx(wanted).epsilon(1e-13));
    }
  }
}

TEST_CASE("bits depend neither on threads nor on how rows are dealt to calls") {
  const Matrix x = gaussian(203, 61, 4);
  const Matrix y = gaussian(203, 5, 5);
  const auto computed = [&](int threads, Index rows_at_once) {
    const Threads some(threads);
    Matrix gram = zeros(61, 61);
    Matrix out = zeros(61, 5);
    for (Index r = 0; r < x.rows; r += rows_at_once) {
      const Index count = std::min(rows_at_once, x.rows - r);
      add_gram({x.view().row(r), count, 61}, gram.view());
      add_product({x.view().row(r), count, 61}, {y.view().row(r), count, 5}, out.view());
    }
    Cholesky::of(gram.view(), 0.5)->solve(out.view());
    Matrix fitted = zeros(203, 5);
    multiply(x.view(), out.view(), fitted.view());
    out.data.insert(out.data.end(), fitted.data.begin(), fitted.data.end());
    out.data.push_back(largest_eigenvalue(gram.view()));
    return out.data;
  };
  const auto alone = computed(1, 203);
  for (const int threads : {1, 2, 4}) {
    for (const Index rows : {1, 3, 4, 64, 203}) CHECK(computed(threads, rows) == alone);
  }
}

}  // namespace least_squares_test
}  // namespace kvbench::test
