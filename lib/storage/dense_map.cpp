#include "storage/dense_map.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/lanes.hpp"
#include "core/unrolled.hpp"

namespace kvbench {
namespace {

constexpr int kLanes = 4;  // of sums that stay in registers

// out [d] = sum of x_i a_i over rows a_i of `a` [n, d]: many chains side by side. What x_i = 0 adds
// changes no bit: a sum that begins with 0 is never -0.
void combine(const std::vector<double>& a, Index n, Index d, const double* x, double* out) {
  Index first = 0;
  for (; first + kLanes * Lanes::kCount <= d; first += kLanes * Lanes::kCount) {
    Lanes sums[kLanes];
    unrolled<kLanes>([&](auto l) { sums[l] = Lanes::all(0.0); });
    for (Index i = 0; i < n; ++i) {
      if (x[i] == 0.0) continue;
      const Lanes factor = Lanes::all(x[i]);
      const double* row = a.data() + i * d + first;
      unrolled<kLanes>([&](auto l) {
        sums[l] = Lanes::fma(factor, Lanes::load(row + l * Lanes::kCount), sums[l]);
      });
    }
    unrolled<kLanes>([&](auto l) { sums[l].store(out + first + l * Lanes::kCount); });
  }
  std::fill(out + first, out + d, 0.0);
  for (Index i = 0; i < n; ++i) {
    const double* row = a.data() + i * d;
    for (Index k = first; k < d; ++k) out[k] = std::fma(x[i], row[k], out[k]);
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
