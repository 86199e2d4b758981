#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu_kernels.hpp"
#include "kernels/nearer_filter.hpp"
#include "kernels/packed_points.hpp"
#include "numerics/canonical.hpp"
#include "numerics/chains.hpp"
#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

constexpr Index kRowsAtOnce = 256;  // whose distances to the first centre are one piece of work
constexpr double kFrontier = 0.9;   // share of the largest squared distance

// Squared distances, canonical, and the centres they are to: of points to the nearest centre that
// they know.
struct Nearest {
  explicit Nearest(std::size_t points)
      : distances(points, std::numeric_limits<double>::infinity()), centers(points, -1) {}

  std::vector<double> distances;
  std::vector<std::int32_t> centers;
};

// Some points, whose distances follow every centre at once. Unused places are at distance 0.
class Frontier {
 public:
  explicit Frontier(ConstMatrix points) : points_(points), packed_(points.cols), nearest_(0) {}

  // Starts with the rows from `first` on that are at `floor` or farther in `known`.
  void begin(Index first, const Nearest& known, double floor) {
    rows_.clear();
    nearest_.distances.clear();
    nearest_.centers.clear();
    for (std::size_t i = 0; i < known.distances.size(); ++i) {
      if (known.distances[i] < floor) continue;
      rows_.push_back(first + static_cast<Index>(i));
      nearest_.distances.push_back(known.distances[i]);
      nearest_.centers.push_back(known.centers[i]);
    }
    packed_.clear();
    packed_.reserve(std::ssize(rows_));
    for (const Index row : rows_) packed_.add(points_.row(row));
    nearest_.distances.resize(packed_.blocks() * PackedPoints::kWidth, 0.0);
    nearest_.centers.resize(nearest_.distances.size(), -1);
  }

  const std::vector<Index>& rows() const { return rows_; }  // ascending
  const Nearest& nearest() const { return nearest_; }

  // Returns the largest distance that is left.
  double meet(std::int32_t center, const double* point) {
    alignas(64) double fresh[PackedPoints::kWidth];
    Lanes largest = Lanes::all(0.0);
    for (Index b = 0; b < packed_.blocks(); ++b) {
      packed_.distances(b, point, fresh);
      double* distances = nearest_.distances.data() + b * PackedPoints::kWidth;
      std::int32_t* centers = nearest_.centers.data() + b * PackedPoints::kWidth;
      for (Index i = 0; i < PackedPoints::kWidth; ++i) {
        centers[i] = fresh[i] < distances[i] ? center : centers[i];
      }
      for (Index i = 0; i < PackedPoints::kWidth; i += Lanes::kCount) {
        const Lanes least = Lanes::min(Lanes::load(fresh + i), Lanes::load(distances + i));
        least.store(distances + i);
        largest = Lanes::max(largest, least);
      }
    }
    return largest.largest();
  }

  // The first of the points at that distance.
  Index first_at(double distance) const {
    const std::vector<double>& all = nearest_.distances;
    return rows_[std::find(all.begin(), all.end(), distance) - all.begin()];
  }

 private:
  ConstMatrix points_;
  std::vector<Index> rows_;
  PackedPoints packed_;
  Nearest nearest_;
};

// The traversal in rounds: the farthest points, the frontier, are followed from centre to centre
// until none of them is farther than the other points can be; only then those learn of the round's
// centres, by products in single precision that leave few distances to be computed.
class Traversal {
 public:
  Traversal(ConstMatrix points, Index first)
      : points_(points),
        first_(first),
        nearest_(points.rows - first),
        chosen_(nearest_.distances.size(), 0),
        filter_(points, first),
        frontier_(points) {}

  Centers run(Index start, Index count) && {
    double farthest = begin(start);
    while (centers() < count) {
      out_.radius.push_back(std::sqrt(farthest));
      const Index known = centers();
      farthest = follow(farthest, filter_.usable() ? kFrontier * farthest : 0.0, count);
      if (filter_.usable()) farthest = update_from(known);
    }
    out_.radius.push_back(std::sqrt(farthest));
    out_.nearest = std::move(nearest_.centers);
    return std::move(out_);
  }

 private:
  std::size_t place(Index row) const { return row - first_; }
  Index centers() const { return std::ssize(out_.tokens); }

  // First row that is not a centre: centres are at distance 0, as are points equal to one.
  Index first_left() const {
    return first_ + (std::find(chosen_.begin(), chosen_.end(), 0) - chosen_.begin());
  }

  // The first centre. Returns the largest distance to it.
  double begin(Index start) {
    out_.tokens.push_back(start);
    chosen_[place(start)] = 1;
    const auto points = std::ssize(nearest_.distances);
    parallel_for((points + kRowsAtOnce - 1) / kRowsAtOnce, [&](Index part) {
      const Index first = part * kRowsAtOnce;
      const Index last = std::min(first + kRowsAtOnce, points);
      std::vector<const double*> rows;
      for (Index i = first; i < last; ++i) rows.push_back(points_.row(first_ + i));
      std::vector<double> distances(rows.size());
      canonical_chains<DistanceStep>(points_.row(start), rows, points_.cols, distances.data());
      for (Index i = first; i < last; ++i) {
        const double distance = distances[i - first];
        // One that overflows is as far as one that is not known.
        if (!(distance < std::numeric_limits<double>::infinity())) continue;
        nearest_.distances[i] = distance;
        nearest_.centers[i] = 0;
      }
    });
    return *std::max_element(nearest_.distances.begin(), nearest_.distances.end());
  }

  // Goes on among the points at `floor` or farther, whose farthest is at `farthest`, until there
  // are `count` centres or the next is nearer than `floor`. The last centre gets no radius. Returns
  // the largest distance of these points.
  double follow(double farthest, double floor, Index count) {
    frontier_.begin(first_, nearest_, floor);
    for (;;) {
      throw_if_stopped();
      const Index next = farthest > 0.0 ? frontier_.first_at(farthest) : first_left();
      const auto center = static_cast<std::int32_t>(centers());
      out_.tokens.push_back(next);
      chosen_[place(next)] = 1;
      farthest = frontier_.meet(center, points_.row(next));
      if (centers() == count || farthest < floor) break;
      out_.radius.push_back(std::sqrt(farthest));
    }
    for (std::size_t i = 0; i < frontier_.rows().size(); ++i) {
      const std::size_t at = place(frontier_.rows()[i]);
      nearest_.distances[at] = frontier_.nearest().distances[i];
      nearest_.centers[at] = frontier_.nearest().centers[i];
    }
    return farthest;
  }

  // Brings all points up to date with the centres from `known` on; returns their largest distance.
  double update_from(Index known) {
    filter_.forget();
    for (Index c = known; c < centers(); ++c) {
      filter_.add(out_.tokens[c]);
    }
    filter_.finish();
    const Index parts = thread_count();
    const Index tiles = filter_.tiles();
    std::vector<double> largest(parts, 0.0);
    parallel_for(parts, [&](Index p) {
      std::vector<NearerFilter::Pair> pairs;
      double& of_part = largest[p];
      for (Index tile = tiles * p / parts; tile < tiles * (p + 1) / parts; ++tile) {
        of_part = std::max(of_part, update(tile, known, pairs));
      }
    });
    return *std::max_element(largest.begin(), largest.end());
  }

  double update(Index tile, Index known, std::vector<NearerFilter::Pair>& pairs) {
    const Index base = tile * NearerFilter::kWidth;
    const Index used = std::min(NearerFilter::kWidth, points_.rows - first_ - base);
    double* distances = nearest_.distances.data() + base;
    std::int32_t* nearest = nearest_.centers.data() + base;
    filter_.find_nearer(tile, distances, pairs);
    constexpr std::size_t kChains = 8;  // side by side, which hides the latency of one
    for (std::size_t first = 0; first < pairs.size(); first += kChains) {
      const std::size_t count = std::min(kChains, pairs.size() - first);
      const double* x[kChains];
      const double* y[kChains];
      double sums[kChains] = {};
      for (std::size_t i = 0; i < kChains; ++i) {
        const NearerFilter::Pair& pair = pairs[first + std::min(i, count - 1)];
        x[i] = points_.row(first_ + base + pair.point);
        y[i] = points_.row(out_.tokens[known + pair.center]);
      }
      for (Index k = 0; k < points_.cols; ++k) {
        unrolled<kChains>([&](auto i) { sums[i] = DistanceStep::next(x[i][k], y[i][k], sums[i]); });
      }
      for (std::size_t i = 0; i < count; ++i) {
        const NearerFilter::Pair& pair = pairs[first + i];
        if (!(sums[i] < distances[pair.point])) continue;
        distances[pair.point] = sums[i];
        nearest[pair.point] = static_cast<std::int32_t>(known) + pair.center;
      }
    }
    return *std::max_element(distances, distances + used);
  }

  ConstMatrix points_;
  Index first_;
  Nearest nearest_;
  std::vector<char> chosen_;
  NearerFilter filter_;
  Frontier frontier_;
  Centers out_;
};

}  // namespace

Centers CpuKernels::farthest_first(ConstMatrix points, Index first, Index last, Index start,
                                   Index count) const {
  count = std::min(count, last - first);
  if (count <= 0) {
    return {{}, {}, std::vector<std::int32_t>(std::max<Index>(0, last - first), -1)};
  }
  points.rows = last;
  return Traversal(points, first).run(start, count);
}

}  // namespace kvbench
