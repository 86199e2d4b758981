#include "core/rotation.hpp"

#include <cmath>

namespace kvbench {

Turn::Turn(const Rope& rope, double positions)
    : rope_(&rope), cos_(rope.inv_freq.size()), sin_(rope.inv_freq.size()) {
  set(positions);
}

void Turn::set(double positions) {
  for (std::size_t p = 0; p < cos_.size(); ++p) {
    const double angle = positions * rope_->inv_freq[p];
    cos_[p] = std::cos(angle);
    sin_[p] = std::sin(angle);
  }
}

Turn Turn::mean(const Rope& rope, Index first, Index last) {
  Turn out(rope);
  std::vector<double> cos(out.cos_.size(), 0.0);
  std::vector<double> sin(out.sin_.size(), 0.0);
  for (Index position = first; position < last; ++position) {
    out.set(position);
    for (std::size_t p = 0; p < cos.size(); ++p) {
      cos[p] += out.cos_[p];
      sin[p] += out.sin_[p];
    }
  }
  const double count = last - first;
  for (std::size_t p = 0; p < cos.size(); ++p) {
    out.cos_[p] = cos[p] / count;
    out.sin_[p] = sin[p] / count;
  }
  return out;
}

void Turn::apply(const double* in, Index d, double* out) const {
  for (Index k = 0; k < d; ++k) out[k] = in[k];
  const Index pairs = std::ssize(cos_);
  for (Index p = 0; p < pairs; ++p) {
    const Index a = rope_->interleaved ? 2 * p : p;
    const Index b = rope_->interleaved ? 2 * p + 1 : p + pairs;
    const double c = cos_[p];
    const double s = sin_[p];
    out[a] = in[a] * c - in[b] * s;
    out[b] = in[b] * c + in[a] * s;
  }
}

}  // namespace kvbench
