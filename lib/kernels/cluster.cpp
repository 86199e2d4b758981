#include "kernels/cluster.hpp"

#include <cmath>
#include <limits>

#include "core/canonical.hpp"

namespace kvbench::cpu {
namespace {

constexpr int kPanelsAtOnce = 4;  // independent chains that hide the latency of one
constexpr Index kWidth = kPanelsAtOnce * Lanes::kCount;

// Representatives in blocks of kWidth, dimension-major; unused places are far away.
class Representatives {
 public:
  explicit Representatives(Index d) : d_(d) {}

  Index count() const { return count_; }

  void add(const double* point) {
    if (count_ % kWidth == 0) {
      packed_.resize(packed_.size() + static_cast<std::size_t>(kWidth * d_), 1e150);
    }
    double* place = packed_.data() + count_ / kWidth * kWidth * d_ + count_ % kWidth;
    for (Index k = 0; k < d_; ++k) place[k * kWidth] = point[k];
    ++count_;
  }

  // The nearest representative (ties: oldest) and its squared distance.
  Index nearest(const double* point, double& best) const {
    best = std::numeric_limits<double>::infinity();
    Index winner = -1;
    for (Index base = 0; base < count_; base += kWidth) {
      const double* block = packed_.data() + base * d_;
      Lanes sums[kPanelsAtOnce];
      for (Lanes& sum : sums) sum = Lanes::all(0.0);
      for (Index k = 0; k < d_; ++k) {
        const Lanes x = Lanes::all(point[k]);
        for (int p = 0; p < kPanelsAtOnce; ++p) {
          const Lanes difference = x - Lanes::load(block + k * kWidth + p * Lanes::kCount);
          sums[p] = Lanes::fma(difference, difference, sums[p]);
        }
      }
      alignas(64) double distances[kWidth];
      for (int p = 0; p < kPanelsAtOnce; ++p) sums[p].store(distances + p * Lanes::kCount);
      const Index used = std::min(kWidth, count_ - base);
      for (Index i = 0; i < used; ++i) {
        if (distances[i] < best) {
          best = distances[i];
          winner = base + i;
        }
      }
    }
    return winner;
  }

 private:
  Index d_;
  Index count_ = 0;
  std::vector<double> packed_;
};

}  // namespace

Clustering cluster(ConstMatrix points, Index first, double delta) {
  Clustering out;
  out.delta = delta;
  out.first = first;
  out.assignment.reserve(static_cast<std::size_t>(std::max<Index>(0, points.rows - first)));
  Representatives representatives(points.cols);
  for (Index j = first; j < points.rows; ++j) {
    double best = 0.0;
    Index winner = representatives.nearest(points.row(j), best);
    if (winner < 0 || std::sqrt(best) > delta) {
      winner = representatives.count();
      representatives.add(points.row(j));
      out.opened_by.push_back(static_cast<std::int32_t>(j));
    }
    out.assignment.push_back(static_cast<std::int32_t>(winner));
  }
  return out;
}

}  // namespace kvbench::cpu
