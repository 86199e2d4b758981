#include "storage/dense_map.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvbench {
namespace {

// out [d] = sum of x_i a_i over rows a_i of `a` [n, d]: many chains side by side.
void combine(const std::vector<double>& a, Index n, Index d, const double* x, double* out) {
  std::fill(out, out + d, 0.0);
  for (Index i = 0; i < n; ++i) {
    const double* row = a.data() + i * d;
    for (Index k = 0; k < d; ++k) out[k] = std::fma(x[i], row[k], out[k]);
  }
}

}  // namespace

DenseMap::DenseMap(Index rows, Index d, std::function<std::vector<double>()> make)
    : m_(rows), d_(d), make_(std::move(make)) {}

void DenseMap::fill() const {
  std::call_once(filled_, [&] {
    rows_ = make_();
    columns_.resize(rows_.size());
    for (Index i = 0; i < m_; ++i) {
      for (Index j = 0; j < d_; ++j) {
        columns_[static_cast<std::size_t>(j * m_ + i)] =
            rows_[static_cast<std::size_t>(i * d_ + j)];
      }
    }
  });
}

void DenseMap::apply(const double* x, double* out) const {
  fill();
  combine(columns_, d_, m_, x, out);
}

void DenseMap::apply_transposed(const double* y, Index rows, double* out) const {
  fill();
  combine(rows_, rows, d_, y, out);
}

}  // namespace kvbench
