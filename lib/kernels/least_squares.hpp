// Dense least squares and symmetric matrices in canonical arithmetic: every number is a fixed chain
// of fused multiply-adds, divisions and roots, so its bits depend neither on threads nor on
// instruction set. Their solutions decide something (which token a pursuit takes next), so no
// library computes them.
#pragma once

#include <optional>
#include <vector>

#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// gram += X^T X, [k, k] for X [rows, k]; the upper triangle alone. Rows ascending, so that the bits
// are the same however rows are dealt to calls.
void add_gram(ConstMatrix x, MutableMatrix gram);

// The lower triangle of a square matrix becomes that of a symmetric one.
void mirror_upper(MutableMatrix a);

// out += X^T Y, [k, m] for X [rows, k] and Y [rows, m]; likewise.
void add_product(ConstMatrix x, ConstMatrix y, MutableMatrix out);

// out = X C, [rows, m] for X [rows, k] and C [k, m].
void multiply(ConstMatrix x, ConstMatrix c, MutableMatrix out);

// A = U^T U.
class Cholesky {
 public:
  // Factor of A + shift I, A [n, n] given by its upper triangle; none where that is not positive
  // definite in double precision.
  static std::optional<Cholesky> of(ConstMatrix a, double shift);

  // B [n, m] becomes A^-1 B.
  void solve(MutableMatrix b) const;
  // B becomes U^-T B, whose columns' squared 2-norms are b^T A^-1 b.
  void solve_half(MutableMatrix b) const;

 private:
  explicit Cholesky(Index n) : n_(n), u_(static_cast<std::size_t>(n * n), 0.0) {}
  bool factorise();
  double* row(Index i) { return u_.data() + i * n_; }
  const double* row(Index i) const { return u_.data() + i * n_; }

  Index n_;
  AlignedDoubles u_;  // upper triangle, row by row
};

// x^T A^-1 x of each row x of X [rows, n]: leverage scores where A is X^T X.
std::vector<double> quadratic_forms(const Cholesky& a, ConstMatrix x);

// The largest eigenvalue of a symmetric positive semidefinite A [n, n], given by its upper
// triangle: A to tridiagonal form by Householder's reflections, then bisection. Relative error of
// the order of n 2^-53.
double largest_eigenvalue(ConstMatrix a);

}  // namespace kvbench
