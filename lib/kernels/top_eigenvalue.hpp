// The largest eigenvalue of a symmetric positive semidefinite matrix, with a proven error.
#pragma once

#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// Relative error below 1e-10. `gram`: [d, d], symmetric, positive semidefinite, both triangles
// filled. Lanczos gives a lower bound; that nothing lies more than 1e-10 above it is proved by a
// Cholesky factorisation of (1 + 1e-10) bound I - gram, and if the proof fails the full
// eigenvalue solver answers.
double top_eigenvalue(ConstMatrix gram);

// The same by the full eigenvalue solver alone.
double solved_top_eigenvalue(ConstMatrix gram);

// The largest eigenvalue of (rows / scale)^T (rows / scale), by top_eigenvalue.
double scaled_top_eigenvalue(ConstMatrix rows, double scale);

// As top_eigenvalue, for matrices that follow one another and differ little, such as Gram matrices
// that grow row by row: each search starts at the eigenvector before. With m an upper bound of the
// second eigenvalue, a unit vector x of Rayleigh quotient t > m and residual r proves that the
// largest eigenvalue lies in [t, t + ||r||^2 / (t - m)] (Temple's inequality). Where t is not well
// above m, as with values of no preferred direction, a Cholesky factorisation proves t, as above.
class FollowedEigenvalue {
 public:
  // `all` [d, d]: no less than any of the matrices, in the order of symmetric matrices; then its
  // second eigenvalue is no less than theirs. `count`: how many matrices will follow; for few of
  // them its own eigenvectors are too expensive, and all are answered by top_eigenvalue.
  FollowedEigenvalue(ConstMatrix all, Index count);

  // As top_eigenvalue, which answers if the proof fails.
  double of(ConstMatrix gram);

 private:
  // Both go on from current_; false if they do not arrive or the proof fails.
  bool by_newton(ConstMatrix gram, double& found);
  // Each step takes the largest Ritz value of x, what the last step added to it and a correction
  // (Knyazev 2001, algorithm 4.1): dearer, but it converges if the largest eigenvalues crowd.
  bool by_ritz_values(ConstMatrix gram, double& found);

  double scale_ = 0.0;           // largest diagonal element of `all`; 0: nothing to follow
  double second_ = 0.0;          // no less than the second eigenvalue of all / scale
  std::vector<double> values_;   // [d] of all / scale, ascending
  std::vector<double> vectors_;  // [d, d], a row per eigenvector
  std::vector<double> current_;  // [d] unit vector
};

}  // namespace kvbench
