// Row-major views of matrices owned elsewhere.
#pragma once

#include "system/index.hpp"

namespace kvbench {

// A view of `rows` rows of `cols` contiguous elements, `stride` elements apart.
template <class T>
struct MatrixView {
  T* data = nullptr;
  Index rows = 0;
  Index cols = 0;
  Index stride = 0;

  MatrixView() = default;
  MatrixView(T* data_, Index rows_, Index cols_) : MatrixView(data_, rows_, cols_, cols_) {}
  MatrixView(T* data_, Index rows_, Index cols_, Index stride_)
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}

  T* row(Index i) const { return data + i * stride; }
  T& operator()(Index i, Index j) const { return data[i * stride + j]; }
  // NOLINTNEXTLINE(google-explicit-constructor): as T* becomes const T*
  operator MatrixView<const T>() const { return {data, rows, cols, stride}; }
};

using ConstMatrix = MatrixView<const double>;
using MutableMatrix = MatrixView<double>;

}  // namespace kvbench
