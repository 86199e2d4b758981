#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/canonical.hpp"
#include "core/lanes.hpp"
#include "core/parallel.hpp"
#include "core/stop.hpp"
#include "kernels/cpu_kernels.hpp"
#include "kernels/distance_filter.hpp"
#include "kernels/packed_points.hpp"

namespace kvbench {
namespace {

constexpr Index kPointsAtOnce = 128;  // whose distances are filtered by one product
constexpr double kFrontier = 0.9;     // of the largest squared distance

// A point's nearest centre, of those that it knows.
struct Nearest {
  double distance = std::numeric_limits<double>::infinity();  // squared, canonical
  std::int32_t center = -1;
};

// Some points, whose distances follow every centre at once. Unused places are at distance 0.
class Frontier {
 public:
  explicit Frontier(ConstMatrix points) : points_(points), packed_(points.cols) {}

  void add(Index row, const Nearest& nearest) {
    packed_.add(points_.row(row));
    rows_.push_back(row);
    distances_.resize(static_cast<std::size_t>(packed_.blocks() * PackedPoints::kWidth), 0.0);
    centers_.resize(distances_.size(), -1);
    distances_[rows_.size() - 1] = nearest.distance;
    centers_[rows_.size() - 1] = nearest.center;
  }

  Index size() const { return static_cast<Index>(rows_.size()); }
  Index row(Index i) const { return rows_[static_cast<std::size_t>(i)]; }
  Nearest nearest(Index i) const {
    return {distances_[static_cast<std::size_t>(i)], centers_[static_cast<std::size_t>(i)]};
  }

  void meet(std::int32_t center, const double* point) {
    alignas(64) double fresh[PackedPoints::kWidth];
    for (Index b = 0; b < packed_.blocks(); ++b) {
      packed_.distances(b, point, fresh);
      const auto base = static_cast<std::size_t>(b * PackedPoints::kWidth);
      for (std::size_t i = 0; i < PackedPoints::kWidth; ++i) {
        if (fresh[i] < distances_[base + i]) {
          distances_[base + i] = fresh[i];
          centers_[base + i] = center;
        }
      }
    }
  }

  double largest_distance() const {
    Lanes largest = Lanes::all(0.0);
    for (std::size_t i = 0; i < distances_.size(); i += Lanes::kCount) {
      largest = Lanes::max(largest, Lanes::load(distances_.data() + i));
    }
    return largest.largest();
  }

  // The first of the points at that distance.
  Index first_at(double distance) const {
    return row(std::find(distances_.begin(), distances_.end(), distance) - distances_.begin());
  }

 private:
  ConstMatrix points_;
  std::vector<Index> rows_;  // ascending
  PackedPoints packed_;
  std::vector<double> distances_;
  std::vector<std::int32_t> centers_;
};

// The traversal in rounds: the farthest points, the frontier, are followed from centre to centre
// until none of them is farther than the other points can be; only then those learn of the round's
// centres, by one product in single precision that leaves few distances to be computed.
class Traversal {
 public:
  Traversal(ConstMatrix points, Index first)
      : points_(points),
        first_(first),
        nearest_(static_cast<std::size_t>(points.rows - first)),
        chosen_(nearest_.size(), 0),
        filter_points_(points, first),
        filters_(static_cast<std::size_t>(thread_count()), DistanceFilter(filter_points_)) {}

  Centers run(Index start, Index count) && {
    follow(0.0, start, 1);
    while (centers() < count) {
      const double farthest = largest_distance();
      out_.radius.push_back(std::sqrt(farthest));
      const Index known = centers();
      follow(filter_points_.usable() ? kFrontier * farthest : 0.0, -1, count);
      update_from(known);
    }
    out_.radius.push_back(std::sqrt(largest_distance()));
    for (const Nearest& nearest : nearest_) out_.nearest.push_back(nearest.center);
    return std::move(out_);
  }

 private:
  std::size_t place(Index row) const { return static_cast<std::size_t>(row - first_); }
  Index centers() const { return static_cast<Index>(out_.tokens.size()); }
  double largest_distance() const {
    double largest = 0.0;
    for (const Nearest& nearest : nearest_) largest = std::max(largest, nearest.distance);
    return largest;
  }

  // Of rows that are not centres, the first: centres are at distance 0, as are points equal to one.
  Index first_left() const {
    return first_ + (std::find(chosen_.begin(), chosen_.end(), 0) - chosen_.begin());
  }

  // Goes on among the points at `floor` or farther, from `start` on (-1: from the farthest), until
  // there are `count` centres or the next is nearer. Of the last centre no radius is given.
  void follow(double floor, Index start, Index count) {
    Frontier frontier(points_);
    for (Index row = first_; row < points_.rows; ++row) {
      if (nearest_[place(row)].distance >= floor) frontier.add(row, nearest_[place(row)]);
    }
    double farthest = frontier.largest_distance();
    Index next = start;
    for (;;) {
      throw_if_stopped();
      if (next < 0) next = farthest > 0.0 ? frontier.first_at(farthest) : first_left();
      const auto center = static_cast<std::int32_t>(centers());
      out_.tokens.push_back(next);
      chosen_[place(next)] = 1;
      frontier.meet(center, points_.row(next));
      farthest = frontier.largest_distance();
      if (centers() == count || farthest < floor) break;
      out_.radius.push_back(std::sqrt(farthest));
      next = -1;
    }
    for (Index i = 0; i < frontier.size(); ++i) {
      nearest_[place(frontier.row(i))] = frontier.nearest(i);
    }
  }

  // Brings all points up to date with the centres from `known` on.
  void update_from(Index known) {
    if (!filter_points_.usable()) return;
    const auto parts = static_cast<Index>(filters_.size());
    const Index points = points_.rows - first_;
    parallel_for(parts, [&](Index p) {
      DistanceFilter& filter = filters_[static_cast<std::size_t>(p)];
      filter.forget();
      for (Index c = known; c < centers(); ++c) {
        filter.add(out_.tokens[static_cast<std::size_t>(c)]);
      }
      const Index last = first_ + points * (p + 1) / parts;
      for (Index row = first_ + points * p / parts; row < last; row += kPointsAtOnce) {
        update(filter, known, row, std::min(row + kPointsAtOnce, last));
      }
    });
  }

  void update(DistanceFilter& filter, Index known, Index first, Index last) {
    filter.ask(first, last);
    for (Index row = first; row < last; ++row) {
      Nearest& nearest = nearest_[place(row)];
      const DistanceFilter::Answer& answer = filter.answer(row);
      if (answer.low > nearest.distance) continue;
      for (const std::int32_t near : answer.near) {
        const Index center = known + near;
        const double* c = points_.row(out_.tokens[static_cast<std::size_t>(center)]);
        const double distance = squared_distance(points_.row(row), c, points_.cols);
        if (distance < nearest.distance) nearest = {distance, static_cast<std::int32_t>(center)};
      }
    }
  }

  ConstMatrix points_;
  Index first_;
  std::vector<Nearest> nearest_;
  std::vector<char> chosen_;
  FilterPoints filter_points_;
  std::vector<DistanceFilter> filters_;  // one per part of the points
  Centers out_;
};

}  // namespace

Centers CpuKernels::farthest_first(ConstMatrix points, Index first, Index last, Index start,
                                   Index count) const {
  count = std::min(count, last - first);
  if (count <= 0) {
    return {
        {},
        {},
        std::vector<std::int32_t>(static_cast<std::size_t>(std::max<Index>(0, last - first)), -1)};
  }
  points.rows = last;
  return Traversal(points, first).run(start, count);
}

}  // namespace kvbench
