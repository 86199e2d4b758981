// Products of vectors with a matrix, many at a time: at the speed of a matrix product, each number
// still a chain of its own.
#pragma once

#include <vector>

#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// A matrix [terms, columns] in panels of 8 columns, term by term; 0 past the last column.
class Panels {
 public:
  Panels() = default;
  // `at(k, c)`: its numbers.
  template <class At>
  Panels(Index terms, Index columns, const At& at) : terms_(terms), columns_(columns) {
    numbers_.assign((columns + kWidth - 1) / kWidth * kWidth * terms, 0.0);
    for (Index c = 0; c < columns; ++c) {
      double* to = numbers_.data() + c / kWidth * panel_size() + c % kWidth;
      for (Index k = 0; k < terms; ++k) to[k * kWidth] = at(k, c);
    }
  }

  static constexpr Index kWidth = 8;

  Index terms() const { return terms_; }
  Index columns() const { return columns_; }
  Index panel_size() const { return terms_ * kWidth; }
  // Panel of columns [kWidth i, kWidth (i + 1)): [terms, kWidth].
  const double* panel(Index i) const { return numbers_.data() + i * panel_size(); }

 private:
  Index terms_ = 0;
  Index columns_ = 0;
  AlignedDoubles numbers_;
};

// Rows of numbers `row` apart, the terms of a row `term` apart.
struct Factors {
  const double* data;
  Index row;
  Index term;
};

// out(i, c) = the sum of x(i, k) panels(k, c): a chain of fused multiply-adds over k from 0 up,
// k < terms, of the first out.cols columns.
void multiply(const Factors& x, Index terms, const Panels& panels, MutableMatrix out);
// The same over the terms of a list, in its order.
void multiply(const Factors& x, const std::vector<Index>& terms, const Panels& panels,
              MutableMatrix out);

}  // namespace kvbench
