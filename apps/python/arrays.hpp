// Arrays of Python as matrices of the library, and back.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench::python {

using AnyArray = nanobind::ndarray<nanobind::ro>;

// A stack of matrices [heads, rows, columns] of doubles. A C-contiguous float64 array is used
// in place and must live as long; other layouts, float32, float16 and bfloat16 are copied exactly.
class DoubleStack {
 public:
  // `given` has 3 dimensions, or 2 where it is one matrix. Throws InputError, naming the array
  // `name`, for other dimensions, element types, and memory that is not the CPU's.
  DoubleStack(std::string name, const AnyArray& given);

  Index heads() const { return heads_; }
  Index rows() const { return rows_; }
  Index columns() const { return columns_; }
  bool is_copy() const { return !own_.empty(); }
  ConstMatrix matrix(Index head) const {
    return {data_ + head * rows_ * columns_, rows_, columns_};
  }

  // Throws InputError unless all numbers are finite. Reads them all.
  void require_finite() const;

 private:
  std::string name_;
  Index heads_ = 1;
  Index rows_ = 0;
  Index columns_ = 0;
  const double* data_ = nullptr;
  std::vector<double> own_;
};

// A NumPy array that owns `values`.
template <class T, class... Shape>
nanobind::object numpy_array(std::vector<T> values, Shape... shape) {
  auto* owned = new std::vector<T>(std::move(values));
  const nanobind::capsule owner(owned,
                                [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(
      owned->data(), {static_cast<std::size_t>(shape)...}, owner));
}

}  // namespace kvbench::python
