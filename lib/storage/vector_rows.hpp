// Scratch: vectors of equal width, one after the other.
#pragma once

#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

class VectorRows {
 public:
  // Numbers have no value before they are given one.
  VectorRows(Index rows, Index width)
      : rows_(rows), width_(width), numbers_(static_cast<std::size_t>(rows * width)) {}

  MutableMatrix all() { return {numbers_.data(), rows_, width_}; }
  ConstMatrix view() const { return {numbers_.data(), rows_, width_}; }
  double* row(Index i) { return numbers_.data() + i * width_; }

 private:
  Index rows_;
  Index width_;
  UnfilledDoubles numbers_;
};

}  // namespace kvbench
