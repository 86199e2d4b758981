#include "storage/dense_map.hpp"

#include <utility>

namespace kvbench {

DenseMap::DenseMap(Index rows, Index d, std::function<std::vector<double>()> make)
    : m_(rows), d_(d), make_(std::move(make)) {}

void DenseMap::fill() const {
  std::call_once(filled_, [&] {
    rows_ = make_();
    const ConstMatrix a(rows_.data(), m_, d_);
    by_channel_ = Panels(d_, m_, [&](Index k, Index i) { return a(i, k); });
    by_row_ = Panels(m_, d_, [&](Index i, Index k) { return a(i, k); });
  });
}

void DenseMap::apply(ConstMatrix vectors, MutableMatrix out) const {
  fill();
  multiply({vectors.data, vectors.stride, 1}, d_, by_channel_, out);
}

void DenseMap::apply(ConstMatrix vectors, const std::vector<Index>& channels,
                     MutableMatrix out) const {
  fill();
  multiply({vectors.data, vectors.stride, 1}, channels, by_channel_, out);
}

void DenseMap::apply_across(ConstMatrix vectors, MutableMatrix out) const {
  fill();
  const Panels columns(d_, vectors.rows, [&](Index k, Index t) { return vectors(t, k); });
  multiply({rows_.data(), d_, 1}, d_, columns, out);
}

void DenseMap::apply_transposed(ConstMatrix vectors, MutableMatrix out) const {
  fill();
  multiply({vectors.data, vectors.stride, 1}, vectors.cols, by_row_, out);
}

void DenseMap::apply_transposed(ConstMatrix vectors, const std::vector<Index>& channels,
                                MutableMatrix out) const {
  fill();
  const Panels some(vectors.cols, std::ssize(channels),
                    [&](Index i, Index c) { return rows_[i * d_ + channels[c]]; });
  multiply({vectors.data, vectors.stride, 1}, vectors.cols, some, out);
}

void DenseMap::apply_transposed_across(ConstMatrix across, MutableMatrix out) const {
  fill();
  multiply({across.data, 1, across.stride}, m_, by_row_, out);
}

}  // namespace kvbench
