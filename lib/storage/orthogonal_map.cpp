#include "storage/orthogonal_map.hpp"

#include <algorithm>

#include "core/counter_rng.hpp"
#include "core/random_matrix.hpp"

namespace kvbench {

OrthogonalMap::OrthogonalMap(Rotation rotation, const CodecContext& context,
                             std::string_view purpose)
    : rotation_(rotation), d_(context.width()) {
  const CounterRng draw(context.seed, context.stream.id.hash(), purpose);
  if (rotation == Rotation::kHaar) {
    haar_.emplace(d_, d_, [draw, d = d_] { return haar_matrix(draw, d); });
  }
  if (rotation == Rotation::kHadamardSigns) signs_ = fair_signs(draw, d_);
}

void OrthogonalMap::apply(const double* x, double* out) const {
  if (haar_) {
    haar_->apply(x, out);
    return;
  }
  std::copy(x, x + d_, out);
  for (std::size_t k = 0; k < signs_.size(); ++k) out[k] *= signs_[k];
  if (rotation_ != Rotation::kNone) hadamard_transform(out, d_);
}

void OrthogonalMap::undo(const double* x, double* out) const {
  if (haar_) {
    haar_->apply_transposed(x, d_, out);
    return;
  }
  std::copy(x, x + d_, out);
  if (rotation_ != Rotation::kNone) hadamard_transform(out, d_);
  for (std::size_t k = 0; k < signs_.size(); ++k) out[k] *= signs_[k];
}

Index OrthogonalMap::bytes() const {
  return (haar_ ? haar_->bytes() : 0) + (static_cast<Index>(signs_.size()) + 7) / 8;
}

std::optional<std::string> cannot_rotate(Rotation rotation, Index width, const char* remedy) {
  const bool is_hadamard = rotation == Rotation::kHadamard || rotation == Rotation::kHadamardSigns;
  if (!is_hadamard || is_power_of_two(width)) return std::nullopt;
  return "a Hadamard matrix needs a power of two, vectors have " + std::to_string(width) +
         " numbers; " + remedy;
}

}  // namespace kvbench
