#include "kernels/distance_filter.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

namespace kvbench {
namespace {

using FloatMatrix = Eigen::MatrixXf;
constexpr Index kStep = 32;  // scores whose largest is looked up at once

// Beyond these, squares of double precision overflow or lose digits.
constexpr double kLargest = 1e140;
constexpr double kSmallest = 1e-140;

}  // namespace

FilterScale::FilterScale(ConstMatrix points, Index first) {
  using Row = Eigen::Map<const Eigen::VectorXd>;
  const Index count = points.rows - first;
  if (count <= 0) return;
  Eigen::VectorXd center = Eigen::VectorXd::Zero(points.cols);
  for (Index j = first; j < points.rows; ++j) center += Row(points.row(j), points.cols);
  center /= count;
  if (!center.allFinite()) return;
  double largest = 0.0;
  for (Index j = first; j < points.rows; ++j) {
    largest = std::max(largest, (Row(points.row(j), points.cols) - center).cwiseAbs().maxCoeff());
  }
  if (!(largest >= kSmallest && largest <= kLargest)) return;
  scale = std::ldexp(1.0, -std::ilogb(largest) - 1);
  mean.assign(center.begin(), center.end());
}

FilterPoints::FilterPoints(ConstMatrix points, Index first)
    : first_(first), size_(points.cols + 1), scale_(points, first) {
  using Row = Eigen::Map<const Eigen::VectorXd>;
  if (!usable()) return;
  const Index count = points.rows - first;
  const Row center(scale_.mean.data(), points.cols);
  rows_.resize(count * size_, 1.0F);
  norms_.resize(count);
  Eigen::VectorXd x(points.cols);
  for (Index j = first; j < points.rows; ++j) {
    x = (Row(points.row(j), points.cols) - center) * scale_.scale;
    Eigen::Map<Eigen::VectorXf>(rows_.data() + place(j), points.cols) = x.cast<float>();
    norms_[j - first] = x.norm();
  }
}

void DistanceFilter::add(Index row) {
  const Index size = points_.size_;
  const float* from = points_.rows_.data() + points_.place(row);
  centers_.insert(centers_.end(), from, from + size);
  const double norm = points_.norm(row);
  centers_.back() = static_cast<float>(-0.5 * norm * norm);
  longest_ = std::max(longest_, norm);
  ++count_;
}

void DistanceFilter::forget() {
  centers_.clear();
  count_ = 0;
  longest_ = 0.0;
}

void DistanceFilter::ask(Index first, Index last) {
  if (count_ == 0) return;
  const Index size = points_.size_;
  const Index asked = last - first;
  const Index padded = (count_ + kStep - 1) / kStep * kStep;
  asked_ = first;
  scores_.resize(padded * asked);
  Eigen::Map<FloatMatrix> scores(scores_.data(), padded, asked);
  scores.topRows(count_).noalias() =
      Eigen::Map<const FloatMatrix>(centers_.data(), size, count_).transpose() *
      Eigen::Map<const FloatMatrix>(points_.rows_.data() + points_.place(first), size, asked);
  scores.bottomRows(padded - count_).setConstant(-std::numeric_limits<float>::infinity());
}

const DistanceFilter::Answer& DistanceFilter::answer(Index row) {
  answer_.near.clear();
  answer_.low = answer_.high = std::numeric_limits<double>::infinity();
  if (count_ == 0) return answer_;
  using Step = Eigen::Map<const Eigen::Array<float, kStep, 1>>;
  const Index padded = (count_ + kStep - 1) / kStep * kStep;
  const double norm = points_.norm(row);
  const float* scores = scores_.data() + (row - asked_) * padded;
  const double reach = norm + longest_;
  const double band = filter_band(points_.size_ - 1, reach);
  step_largest_.resize(padded / kStep);
  float best = -std::numeric_limits<float>::infinity();
  for (Index i = 0; i < padded; i += kStep) {
    const float largest = Step(scores + i).maxCoeff();
    step_largest_[i / kStep] = largest;
    best = std::max(best, largest);
  }
  // Scores are half of squared distances: twice the band there is once the band here.
  const double enough = best - band;
  for (Index i = 0; i < padded; i += kStep) {
    if (step_largest_[i / kStep] < enough) continue;
    for (Index c = i; c < std::min(i + kStep, count_); ++c) {
      if (scores[c] >= enough) {
        answer_.near.push_back(static_cast<std::int32_t>(c));
      }
    }
  }
  const double square = norm * norm - 2.0 * best;
  const double scale = points_.scale_.scale * points_.scale_.scale;
  answer_.low = (square - band) / scale;
  answer_.high = (square + band) / scale;
  return answer_;
}

}  // namespace kvbench
