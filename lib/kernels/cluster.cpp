#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu_kernels.hpp"
#include "kernels/distance_filter.hpp"
#include "kernels/packed_points.hpp"
#include "numerics/canonical.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

constexpr Index kTokensAtOnce = 128;  // whose distances are filtered by one product

struct Nearest {
  Index place = -1;
  double squared_distance = std::numeric_limits<double>::infinity();
};

// The nearest representative by canonical distance, the oldest one among equals.
Nearest nearest_of(const PackedPoints& representatives, const double* point) {
  Nearest out;
  alignas(64) double distances[PackedPoints::kWidth];
  for (Index b = 0; b < representatives.blocks(); ++b) {
    representatives.distances(b, point, distances);
    const Index base = b * PackedPoints::kWidth;
    const Index used = std::min(PackedPoints::kWidth, representatives.count() - base);
    for (Index i = 0; i < used; ++i) {
      if (distances[i] < out.squared_distance) out = {base + i, distances[i]};
    }
  }
  return out;
}

// The delta-net on its way through the points. Old representatives are the filter's, so that one
// product serves many points; those opened since its last product are young.
class Net {
 public:
  Net(ConstMatrix points, Index first, double delta)
      : points_(points),
        delta_(delta),
        filter_points_(points, first),
        filter_(filter_points_),
        young_(points.cols) {
    net_.delta = delta;
    net_.first = first;
    net_.assignment.reserve(std::max<Index>(0, points.rows - first));
  }

  void enter(Index first, Index last) {
    filter_.ask(first, last);
    for (Index j = first; j < last; ++j) {
      Index winner = place_of(j);
      if (winner < 0) {
        winner = std::ssize(net_.opened_by);
        young_.add(points_.row(j));
        net_.opened_by.push_back(static_cast<std::int32_t>(j));
      }
      net_.assignment.push_back(static_cast<std::int32_t>(winner));
    }
    if (!filter_points_.usable()) return;
    for (Index c = filter_.count(); c < std::ssize(net_.opened_by); ++c) {
      filter_.add(net_.opened_by[c]);
    }
    young_.clear();
  }

  Clustering take() && { return std::move(net_); }

 private:
  // The cluster that point j joins, or -1: as the canonical distances to all say, of which those
  // are computed that the filter leaves in doubt.
  Index place_of(Index j) {
    Nearest best = nearest_of(young_, points_.row(j));
    best.place += best.place < 0 ? 0 : filter_.count();
    const DistanceFilter::Answer& old = filter_.answer(j);
    const double square = delta_ * delta_;
    const bool joins_old = old.near.size() == 1 && old.high < square * (1.0 - 1e-12) &&
                           old.high < best.squared_distance;
    if (joins_old) return old.near.front();
    if (old.low <= square * (1.0 + 1e-12) && old.low <= best.squared_distance) {
      for (const std::int32_t c : old.near) {
        const double* representative = points_.row(net_.opened_by[c]);
        const double distance = squared_distance(points_.row(j), representative, points_.cols);
        const bool older = distance == best.squared_distance && c < best.place;
        if (distance < best.squared_distance || older) best = {c, distance};
      }
    }
    return std::sqrt(best.squared_distance) > delta_ ? -1 : best.place;
  }

  ConstMatrix points_;
  double delta_;
  FilterPoints filter_points_;
  DistanceFilter filter_;
  PackedPoints young_;
  Clustering net_;
};

}  // namespace

Clustering CpuKernels::cluster(ConstMatrix points, Index first, double delta) const {
  Net net(points, first, delta);
  for (Index start = first; start < points.rows; start += kTokensAtOnce) {
    throw_if_stopped();
    net.enter(start, std::min(start + kTokensAtOnce, points.rows));
  }
  return std::move(net).take();
}

}  // namespace kvbench
