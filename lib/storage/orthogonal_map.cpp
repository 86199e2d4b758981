#include "storage/orthogonal_map.hpp"

#include <algorithm>
#include <functional>

#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"

namespace kvbench {
namespace {

std::function<std::vector<double>()> haar_drawn(const CounterRng& draw, Index d) {
  return [draw, d] { return haar_matrix(draw, d); };
}

}  // namespace

OrthogonalMap::OrthogonalMap(Rotation rotation, const CodecContext& context,
                             std::string_view purpose)
    : rotation_(rotation), d_(context.width()) {
  const CounterRng draw(context.seed, context.stream.id.hash(), purpose);
  if (rotation == Rotation::kHaar) haar_.emplace(d_, d_, haar_drawn(draw, d_));
  if (rotation == Rotation::kHadamardSigns) signs_ = fair_signs(draw, d_);
}

void OrthogonalMap::apply(ConstMatrix vectors, MutableMatrix out) const {
  if (haar_) {
    haar_->apply(vectors, out);
    return;
  }
  for (Index t = 0; t < vectors.rows; ++t) {
    double* y = out.row(t);
    std::copy_n(vectors.row(t), d_, y);
    for (std::size_t k = 0; k < signs_.size(); ++k) y[k] *= signs_[k];
    if (rotation_ != Rotation::kNone) hadamard_transform(y, d_);
  }
}

void OrthogonalMap::undo(ConstMatrix vectors, MutableMatrix out) const {
  if (haar_) {
    haar_->apply_transposed(vectors, out);
    return;
  }
  for (Index t = 0; t < vectors.rows; ++t) {
    double* y = out.row(t);
    std::copy_n(vectors.row(t), d_, y);
    if (rotation_ != Rotation::kNone) hadamard_transform(y, d_);
    for (std::size_t k = 0; k < signs_.size(); ++k) y[k] *= signs_[k];
  }
}

Index OrthogonalMap::bytes() const {
  return (haar_ ? haar_->bytes() : 0) + (std::ssize(signs_) + 7) / 8;
}

DenseMap haar_map(const CodecContext& context, std::string_view purpose) {
  const CounterRng draw(context.seed, context.stream.id.hash(), purpose);
  const Index d = context.width();
  return {d, d, haar_drawn(draw, d)};
}

std::optional<std::string> cannot_rotate(Rotation rotation, Index width, const char* remedy) {
  const bool is_hadamard = rotation == Rotation::kHadamard || rotation == Rotation::kHadamardSigns;
  if (!is_hadamard || is_power_of_two(width)) return std::nullopt;
  return "a Hadamard matrix needs a power of two, vectors have " + std::to_string(width) +
         " numbers; " + remedy;
}

}  // namespace kvbench
