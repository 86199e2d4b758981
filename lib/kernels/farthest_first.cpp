#include "kernels/farthest_first.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/canonical.hpp"
#include "core/stop.hpp"

namespace kvbench::cpu {
namespace {

constexpr int kPanelsAtOnce = 4;
constexpr Index kWidth = kPanelsAtOnce * Lanes::kCount;

// Candidates in blocks of kWidth, dimension-major.
std::vector<double> pack(ConstMatrix points, Index first, Index last) {
  const Index d = points.cols;
  const Index blocks = (last - first + kWidth - 1) / kWidth;
  std::vector<double> packed(static_cast<std::size_t>(blocks * kWidth * d), 0.0);
  for (Index j = first; j < last; ++j) {
    const Index local = j - first;
    double* place = packed.data() + local / kWidth * kWidth * d + local % kWidth;
    for (Index k = 0; k < d; ++k) place[k * kWidth] = points(j, k);
  }
  return packed;
}

// Canonical squared distances of one block of candidates to `center`.
void block_distances(const double* block, const double* center, Index d, double* out) {
  Lanes sums[kPanelsAtOnce];
  for (Lanes& sum : sums) sum = Lanes::all(0.0);
  for (Index k = 0; k < d; ++k) {
    const Lanes c = Lanes::all(center[k]);
    for (int p = 0; p < kPanelsAtOnce; ++p) {
      const Lanes difference = Lanes::load(block + k * kWidth + p * Lanes::kCount) - c;
      sums[p] = Lanes::fma(difference, difference, sums[p]);
    }
  }
  for (int p = 0; p < kPanelsAtOnce; ++p) sums[p].store(out + p * Lanes::kCount);
}

}  // namespace

Centers farthest_first(ConstMatrix points, Index first, Index last, Index start, Index count) {
  Centers out;
  const Index candidates = last - first;
  count = std::min(count, candidates);
  out.nearest.assign(static_cast<std::size_t>(std::max<Index>(0, candidates)), -1);
  if (count <= 0) return out;

  const Index d = points.cols;
  const std::vector<double> packed = pack(points, first, last);
  std::vector<double> distance(static_cast<std::size_t>(candidates),
                               std::numeric_limits<double>::infinity());
  std::vector<bool> chosen(static_cast<std::size_t>(candidates), false);
  alignas(64) double fresh[kWidth];
  Index center = start;
  for (Index c = 0; c < count; ++c) {
    throw_if_stopped();
    out.tokens.push_back(center);
    chosen[static_cast<std::size_t>(center - first)] = true;
    double radius = 0.0;
    double farthest = -1.0;
    Index next = -1;
    for (Index base = 0; base < candidates; base += kWidth) {
      block_distances(packed.data() + base * d, points.row(center), d, fresh);
      const Index used = std::min(kWidth, candidates - base);
      for (Index i = 0; i < used; ++i) {
        const auto j = static_cast<std::size_t>(base + i);
        if (fresh[i] < distance[j]) {
          distance[j] = fresh[i];
          out.nearest[j] = static_cast<std::int32_t>(c);
        }
        radius = std::max(radius, distance[j]);
        if (!chosen[j] && distance[j] > farthest) {
          farthest = distance[j];
          next = first + base + i;
        }
      }
    }
    out.radius.push_back(std::sqrt(radius));
    center = next;
  }
  return out;
}

}  // namespace kvbench::cpu
