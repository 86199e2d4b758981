#include "kernels/distance_filter.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

namespace kvbench {
namespace {

using FloatMatrix = Eigen::MatrixXf;
constexpr Index kStep = 32;  // scores whose largest is looked up at once

// (u of single precision) (d + 14): conversion, product and ||c||^2 / 2 cost (d + 8) u
// (||x|| + ||c||)^2 / 2 of a score (Higham, 3.1), twice that of a squared distance. The rest is
// ample for what double precision loses, here and in a canonical distance.
double unit_band(Index d) { return 0x1p-24 * static_cast<double>(d + 14); }

// Beyond these, squares of double precision overflow or lose digits.
constexpr double kLargest = 1e140;
constexpr double kSmallest = 1e-140;

}  // namespace

DistanceFilter::DistanceFilter(ConstMatrix points, Index first)
    : points_(points), center_(static_cast<std::size_t>(points.cols), 0.0) {
  const Index count = points.rows - first;
  if (count <= 0) return;
  double largest = 0.0;
  for (Index j = first; j < points.rows; ++j) {
    for (Index k = 0; k < points.cols; ++k) {
      center_[static_cast<std::size_t>(k)] += points(j, k) / static_cast<double>(count);
    }
  }
  for (Index j = first; j < points.rows; ++j) {
    for (Index k = 0; k < points.cols; ++k) {
      largest = std::max(largest, std::abs(points(j, k) - center_[static_cast<std::size_t>(k)]));
    }
  }
  if (!(largest >= kSmallest && largest <= kLargest)) return;
  scale_ = std::ldexp(1.0, -std::ilogb(largest) - 1);
}

double DistanceFilter::convert(Index row, float* out) const {
  double squares = 0.0;
  for (Index k = 0; k < points_.cols; ++k) {
    const double x = (points_(row, k) - center_[static_cast<std::size_t>(k)]) * scale_;
    out[k] = static_cast<float>(x);
    squares += x * x;
  }
  return std::sqrt(squares);
}

void DistanceFilter::add(Index row) {
  const Index size = points_.cols + 1;
  centers_.resize(static_cast<std::size_t>((count_ + 1) * size));
  float* column = centers_.data() + count_ * size;
  const double norm = convert(row, column);
  column[points_.cols] = static_cast<float>(-0.5 * norm * norm);
  longest_ = std::max(longest_, norm);
  ++count_;
}

void DistanceFilter::ask(Index first, Index last) {
  if (count_ == 0) return;
  const Index size = points_.cols + 1;
  const Index asked = last - first;
  const Index padded = (count_ + kStep - 1) / kStep * kStep;
  asked_ = first;
  rows_.resize(static_cast<std::size_t>(asked * size));
  norms_.resize(static_cast<std::size_t>(asked));
  for (Index j = 0; j < asked; ++j) {
    norms_[static_cast<std::size_t>(j)] = convert(first + j, rows_.data() + j * size);
    rows_[static_cast<std::size_t>(j * size + points_.cols)] = 1.0F;
  }
  scores_.resize(static_cast<std::size_t>(padded * asked));
  Eigen::Map<FloatMatrix> scores(scores_.data(), padded, asked);
  scores.topRows(count_).noalias() =
      Eigen::Map<const FloatMatrix>(centers_.data(), size, count_).transpose() *
      Eigen::Map<const FloatMatrix>(rows_.data(), size, asked);
  scores.bottomRows(padded - count_).setConstant(-std::numeric_limits<float>::infinity());
}

const DistanceFilter::Answer& DistanceFilter::answer(Index row) {
  answer_.near.clear();
  answer_.low = answer_.high = std::numeric_limits<double>::infinity();
  if (count_ == 0) return answer_;
  using Step = Eigen::Map<const Eigen::Array<float, kStep, 1>>;
  const Index padded = (count_ + kStep - 1) / kStep * kStep;
  const double norm = norms_[static_cast<std::size_t>(row - asked_)];
  const float* scores = scores_.data() + (row - asked_) * padded;
  const double reach = norm + longest_;
  // The last term: what underflow may cost.
  const double band = unit_band(points_.cols) * (reach * reach + 1e-30);
  step_largest_.resize(static_cast<std::size_t>(padded / kStep));
  float best = -std::numeric_limits<float>::infinity();
  for (Index i = 0; i < padded; i += kStep) {
    const float largest = Step(scores + i).maxCoeff();
    step_largest_[static_cast<std::size_t>(i / kStep)] = largest;
    best = std::max(best, largest);
  }
  // Scores are half of squared distances: twice the band there is once the band here.
  const double enough = static_cast<double>(best) - band;
  for (Index i = 0; i < padded; i += kStep) {
    if (static_cast<double>(step_largest_[static_cast<std::size_t>(i / kStep)]) < enough) continue;
    for (Index c = i; c < std::min(i + kStep, count_); ++c) {
      if (static_cast<double>(scores[c]) >= enough) {
        answer_.near.push_back(static_cast<std::int32_t>(c));
      }
    }
  }
  const double square = norm * norm - 2.0 * static_cast<double>(best);
  answer_.low = (square - band) / (scale_ * scale_);
  answer_.high = (square + band) / (scale_ * scale_);
  return answer_;
}

}  // namespace kvbench
