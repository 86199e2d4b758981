// Euclidean norms of vectors whose squares no double may hold.
#pragma once

#include <cmath>
#include <limits>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// Numbers far from 1 are scaled by powers of two before they are squared; the others are summed as
// they are, in their order. NaN if one of them is, infinite if the norm is.
class NormSum {
 public:
  void add(double x) {
    const double size = std::abs(x);
    if (size > kLarge) {
      large_ += (x * kDown) * (x * kDown);
    } else if (size < kSmall) {
      small_ += (x * kUp) * (x * kUp);
    } else {
      middle_ += x * x;
    }
  }

  double value() const {
    if (large_ > 0.0) return std::sqrt(large_ + middle_ * kDown * kDown) / kDown;
    if (middle_ > kEnough) return std::sqrt(middle_);
    return std::sqrt(small_ + middle_ * kUp * kUp) / kUp;
  }

  // Whether the root of a plain sum of squares has all digits of the norm.
  static bool is_safe(double squares) {
    return squares > kEnough && squares <= std::numeric_limits<double>::max();
  }

 private:
  static constexpr double kLarge = 0x1p500;
  static constexpr double kSmall = 0x1p-500;
  static constexpr double kDown = 0x1p-600;
  static constexpr double kUp = 0x1p600;
  static constexpr double kEnough = 0x1p-900;

  double large_ = 0.0;
  double middle_ = 0.0;
  double small_ = 0.0;
};

// The norm of x [n], whose sum of squares is `squares`.
inline double norm(double squares, const double* x, Index n) {
  if (NormSum::is_safe(squares)) return std::sqrt(squares);
  NormSum sum;
  for (Index k = 0; k < n; ++k) sum.add(x[k]);
  return sum.value();
}

inline double frobenius_norm(ConstMatrix matrix) {
  NormSum sum;
  for (Index i = 0; i < matrix.rows; ++i) {
    for (Index k = 0; k < matrix.cols; ++k) sum.add(matrix(i, k));
  }
  return sum.value();
}

}  // namespace kvbench
