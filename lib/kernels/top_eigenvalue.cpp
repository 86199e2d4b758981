#include "kernels/top_eigenvalue.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

namespace kvbench {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

using ConstView = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;

constexpr double kTolerance = 1e-10;
constexpr Index kSmall = 24;  // below this the full solver is as quick
constexpr Index kMaxSteps = 48;
constexpr Index kWorthFollowing = 8;
constexpr int kNewtonSteps = 12;
constexpr int kRitzSteps = 40;
constexpr double kNewtonGap = 1e-2;    // relative; below it Newton's step wanders
constexpr double kMinGap = 1e-3;       // relative; below it a factorisation proves the bound
constexpr double kUnderflow = 1e-100;  // smallest size to square or factorise, next to `all`

ConstView view_of(ConstMatrix m) {
  return {m.data, m.rows, m.cols, Eigen::OuterStride<>(m.stride)};
}

double full_solver(const Matrix& gram) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(gram, Eigen::EigenvaluesOnly);
  return std::max(0.0, solver.eigenvalues()[gram.rows() - 1]);
}

// Lanczos with full reorthogonalisation from a fixed start; a Ritz value is a Rayleigh quotient and
// so never above the largest eigenvalue (to rounding).
double lanczos(const Matrix& gram) {
  const Index d = gram.rows();
  const Index steps = std::min(d, kMaxSteps);
  Matrix basis(d, steps + 1);
  Vector diagonal(steps);
  Vector off_diagonal(steps);
  // Start near the top: the column of the largest diagonal element, plus all directions.
  Index widest = 0;
  gram.diagonal().maxCoeff(&widest);
  Vector start = gram.col(widest) / gram.col(widest).norm();
  for (Index k = 0; k < d; ++k) start[k] += 0.01 * std::cos(static_cast<double>(k + 1));
  basis.col(0) = start.normalized();
  double ritz = 0.0;
  for (Index j = 0; j < steps; ++j) {
    Vector w = gram * basis.col(j);
    diagonal[j] = w.dot(basis.col(j));
    for (int twice = 0; twice < 2; ++twice) {
      const Vector overlap = basis.leftCols(j + 1).transpose() * w;
      w.noalias() -= basis.leftCols(j + 1) * overlap;
    }
    off_diagonal[j] = w.norm();
    const bool last = j + 1 == steps || off_diagonal[j] <= 1e-14 * std::abs(diagonal[0]);
    if (last || j % 4 == 3) {
      Eigen::SelfAdjointEigenSolver<Matrix> small;
      small.computeFromTridiagonal(diagonal.head(j + 1), off_diagonal.head(j),
                                   Eigen::ComputeEigenvectors);
      ritz = small.eigenvalues()[j];
      // The residual of the Ritz pair; its square over the gap bounds the error, so this is ample.
      const double residual = off_diagonal[j] * std::abs(small.eigenvectors()(j, j));
      if (last || residual <= 1e-7 * ritz) break;
    }
    basis.col(j + 1) = w / off_diagonal[j];
  }
  return ritz;
}

bool proves_upper_bound(const Matrix& gram, double bound) {
  Matrix shifted = -gram;
  shifted.diagonal().array() += bound;
  return Eigen::LLT<Matrix>(shifted).info() == Eigen::Success;
}

using Columns = Eigen::Matrix<double, Eigen::Dynamic, 3>;

// False if next to nothing of `v` is outside the span of `basis` (orthonormal columns).
bool orthonormalise(Vector& v, const Eigen::Ref<const Matrix>& basis) {
  const double before = v.norm();
  for (int twice = 0; twice < 2; ++twice) {
    for (Index k = 0; k < basis.cols(); ++k) v -= basis.col(k).dot(v) * basis.col(k);
  }
  const double left = v.norm();
  if (!(left > 1e-6 * before)) return false;
  v /= left;
  return true;
}

// Combines the first `count` columns of `basis`: column 0 becomes the Ritz vector of the largest
// Ritz value, column 1 its part from the other columns, orthonormal to it; `images` alike.
void combine(Columns& basis, Columns& images, Index count) {
  using Small = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, 0, 3, 3>;
  const Small projected = basis.leftCols(count).transpose() * images.leftCols(count);
  const Eigen::SelfAdjointEigenSolver<Matrix> solver{Matrix(projected)};
  Small mix(count, 2);
  mix.col(0) = mix.col(1) = solver.eigenvectors().col(count - 1);
  mix(0, 1) = 0.0;
  mix.col(1) -= mix.col(0).dot(mix.col(1)) * mix.col(0);
  mix.col(1).normalize();
  basis.leftCols<2>() = (basis.leftCols(count) * mix).eval();
  images.leftCols<2>() = (images.leftCols(count) * mix).eval();
}

}  // namespace

double top_eigenvalue(ConstMatrix view) {
  const ConstView gram = view_of(view);
  const double largest = gram.rows() == 0 ? 0.0 : gram.diagonal().maxCoeff();
  if (!(largest > 0.0)) return 0.0;
  if (gram.rows() <= kSmall) return full_solver(gram / largest) * largest;
  const Matrix scaled = gram / largest;
  const double ritz = lanczos(scaled);
  if (proves_upper_bound(scaled, ritz * (1.0 + kTolerance))) return ritz * largest;
  return full_solver(scaled) * largest;
}

double solved_top_eigenvalue(ConstMatrix gram) { return full_solver(view_of(gram)); }

double scaled_top_eigenvalue(ConstMatrix rows, double scale) {
  const Eigen::Map<const Matrix, 0, Eigen::OuterStride<>> columns(
      rows.data, rows.cols, rows.rows, Eigen::OuterStride<>(rows.stride));
  const Matrix scaled = columns / scale;
  Matrix gram = Matrix::Zero(rows.cols, rows.cols);
  gram.selfadjointView<Eigen::Lower>().rankUpdate(scaled);
  gram.triangularView<Eigen::StrictlyUpper>() = gram.transpose();
  return top_eigenvalue({gram.data(), gram.rows(), gram.cols()});
}

FollowedEigenvalue::FollowedEigenvalue(ConstMatrix all, Index count) {
  const Index d = all.rows;
  if (count < kWorthFollowing || d < 2) return;
  const ConstView matrix = view_of(all);
  const double largest = matrix.diagonal().maxCoeff();
  if (!(largest > 0.0) || !std::isfinite(largest)) return;
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(matrix / largest);
  if (solver.info() != Eigen::Success) return;
  scale_ = largest;
  values_.assign(solver.eigenvalues().data(), solver.eigenvalues().data() + d);
  vectors_.assign(solver.eigenvectors().data(), solver.eigenvectors().data() + d * d);
  // The second eigenvalue regains what rounding may have taken from that of `all`.
  second_ = values_[d - 2] + 1e-12 * values_.back();
  current_.assign(vectors_.end() - d, vectors_.end());
}

double FollowedEigenvalue::of(ConstMatrix view) {
  if (scale_ == 0.0) return top_eigenvalue(view);
  double found = 0.0;
  if (by_newton(view, found)) return found;
  if (view.rows > kSmall && by_ritz_values(view, found)) return found;
  std::copy(vectors_.end() - view.rows, vectors_.end(), current_.begin());
  return top_eigenvalue(view);
}

bool FollowedEigenvalue::by_newton(ConstMatrix view, double& found) {
  const Index d = view.rows;
  const ConstView gram = view_of(view);
  const Eigen::Map<const Matrix> vectors(vectors_.data(), d, d);
  const Eigen::Map<const Vector> values(values_.data(), d);
  Eigen::Map<Vector> x(current_.data(), d);
  Vector residual(d);
  Vector correction(d);
  for (int step = 0; step < kNewtonSteps; ++step) {
    residual.noalias() = gram * x;
    residual /= scale_;
    const double ritz = residual.dot(x);
    residual -= ritz * x;
    const double gap = ritz - second_;
    if (!(gap > kNewtonGap * ritz)) return false;
    if (residual.squaredNorm() <= 0.5 * kTolerance * ritz * gap) {
      found = ritz * scale_;
      return true;
    }
    // Newton's step for `all` in place of the matrix: (t - all)^-1 r besides the top eigenvector.
    correction.noalias() = vectors.transpose() * residual;
    correction.head(d - 1).array() /= ritz - values.head(d - 1).array();
    correction[d - 1] = 0.0;
    x.noalias() += vectors * correction;
    x.normalize();
  }
  return false;
}

bool FollowedEigenvalue::by_ritz_values(ConstMatrix view, double& found) {
  const Index d = view.rows;
  const ConstView gram = view_of(view);
  const Eigen::Map<const Matrix> vectors(vectors_.data(), d, d);
  const Eigen::Map<const Vector> values(values_.data(), d);
  const double top = values[d - 1];
  Eigen::Map<Vector> x(current_.data(), d);
  Columns basis(d, 3);   // orthonormal: x, what the last step added to it, the next correction
  Columns images(d, 3);  // gram / scale times these, combined as they are
  basis.col(0) = x;
  images.col(0).noalias() = gram * x;
  images.col(0) /= scale_;
  Vector residual(d);
  Vector correction(d);
  for (int step = 0; step < kRitzSteps; ++step) {
    const double ritz = images.col(0).dot(basis.col(0));
    if (!(ritz > kUnderflow)) return false;
    residual = images.col(0) - ritz * basis.col(0);
    const double gap = std::max(ritz - second_, kMinGap * ritz);
    if (residual.squaredNorm() <= 0.5 * kTolerance * ritz * gap) {
      x = basis.col(0).normalized();
      found = ritz * scale_;
      return ritz - second_ >= gap || proves_upper_bound(gram / scale_, ritz * (1.0 + kTolerance));
    }
    // As Newton's step, but from the top of `all`: it stays positive if the matrix is far below.
    correction.noalias() = vectors.transpose() * residual;
    correction.array() /= (top - values.array()).max(1e-2 * top);
    correction[d - 1] = 0.0;
    residual.noalias() = vectors * correction;
    const Index known = step == 0 ? 1 : 2;
    if (!orthonormalise(residual, basis.leftCols(known))) return false;
    basis.col(known) = residual;
    images.col(known).noalias() = gram * residual;
    images.col(known) /= scale_;
    combine(basis, images, known + 1);
  }
  return false;
}

}  // namespace kvbench
