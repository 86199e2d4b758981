// A matrix that vectors are multiplied by, forth and back.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

class DenseMap {
 public:
  // `make` returns the matrix, [rows, d], row-major. It is called when the first vector is
  // multiplied: what only asks for sizes draws nothing.
  DenseMap(Index rows, Index d, std::function<std::vector<double>()> make);

  // out [m] = A x; each element is a chain of fused multiply-adds from index 0 up.
  void apply(const double* x, double* out) const;
  // out [d] = A^T y of the first `rows` rows, likewise.
  void apply_transposed(const double* y, Index rows, double* out) const;
  // In single precision.
  Index bytes() const { return 4 * m_ * d_; }

 private:
  void fill() const;

  Index m_;
  Index d_;
  std::function<std::vector<double>()> make_;
  mutable std::once_flag filled_;
  mutable std::vector<double> rows_;     // [m, d]
  mutable std::vector<double> columns_;  // [d, m]
};

}  // namespace kvbench
