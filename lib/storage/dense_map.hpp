// A matrix that vectors are multiplied by, forth and back.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "numerics/matrix_view.hpp"
#include "storage/panel_product.hpp"

namespace kvbench {

// Each number of a product is a chain of fused multiply-adds from the first term up, whatever is
// multiplied together. The term of a 0 in a vector changes no bit: leaving it out is the same,
// except for the sign of a sum so small that it vanished.
class DenseMap {
 public:
  // `make` returns the matrix, [rows, d], row-major. It is called when the first vector is
  // multiplied: what only asks for sizes draws nothing.
  DenseMap(Index rows, Index d, std::function<std::vector<double>()> make);

  // Rows of `out` [n, m] = A x of rows x of `vectors` [n, d].
  void apply(ConstMatrix vectors, MutableMatrix out) const;
  // The same for vectors that are 0 outside `channels`, ascending, and for the first out.cols rows.
  void apply(ConstMatrix vectors, const std::vector<Index>& channels, MutableMatrix out) const;
  // Columns of `out` [m, n] = A x: a row of `out` has one number of every vector.
  void apply_across(ConstMatrix vectors, MutableMatrix out) const;

  // Rows of `out` [n, d] = A^T y of rows y of `vectors` [n, rows], with the first `rows` rows of A.
  void apply_transposed(ConstMatrix vectors, MutableMatrix out) const;
  // The same of some channels alone: `out` [n, channels].
  void apply_transposed(ConstMatrix vectors, const std::vector<Index>& channels,
                        MutableMatrix out) const;
  // Rows of `out` [n, d] = A^T y of columns y of `across` [m, n].
  void apply_transposed_across(ConstMatrix across, MutableMatrix out) const;

  // Bytes of the matrix in single precision.
  Index bytes() const { return 4 * m_ * d_; }

 private:
  void fill() const;

  Index m_;
  Index d_;
  std::function<std::vector<double>()> make_;
  mutable std::once_flag filled_;
  mutable std::vector<double> rows_;  // [m, d]
  mutable Panels by_channel_;         // [d, m]
  mutable Panels by_row_;             // [m, d]
};

}  // namespace kvbench
