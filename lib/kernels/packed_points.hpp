// Points laid out so that canonical distances of many to one are computed side by side.
#pragma once

#include <vector>

#include "numerics/lanes.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// In blocks of kWidth points, dimension-major. Unused places of the last block hold zeros.
class PackedPoints {
 public:
  static constexpr int kPanels = 4;  // independent chains that hide the latency of one
  static constexpr Index kWidth = kPanels * Lanes::kCount;

  explicit PackedPoints(Index d) : d_(d) {}

  Index count() const { return count_; }
  Index blocks() const { return (count_ + kWidth - 1) / kWidth; }

  void clear() {
    count_ = 0;
    packed_.clear();
  }

  // Room for so many, in all.
  void reserve(Index count) { packed_.reserve((count + kWidth - 1) / kWidth * kWidth * d_); }

  void add(const double* point) {
    if (count_ % kWidth == 0)
      packed_.resize(packed_.size() + static_cast<std::size_t>(kWidth * d_));
    double* place = packed_.data() + count_ / kWidth * kWidth * d_ + count_ % kWidth;
    for (Index k = 0; k < d_; ++k) place[k * kWidth] = point[k];
    ++count_;
  }

  // Canonical squared distances [kWidth] of a block's points to `point`.
  void distances(Index block, const double* point, double* out) const {
    const double* packed = packed_.data() + block * kWidth * d_;
    Lanes sums[kPanels];
    for (Lanes& sum : sums) sum = Lanes::all(0.0);
    for (Index k = 0; k < d_; ++k) {
      const Lanes x = Lanes::all(point[k]);
      for (int p = 0; p < kPanels; ++p) {
        const Lanes difference = Lanes::load(packed + k * kWidth + p * Lanes::kCount) - x;
        sums[p] = Lanes::fma(difference, difference, sums[p]);
      }
    }
    for (int p = 0; p < kPanels; ++p) sums[p].store(out + p * Lanes::kCount);
  }

 private:
  Index d_;
  Index count_ = 0;
  std::vector<double> packed_;
};

}  // namespace kvbench
