// Kernels::farthest_first on a device: one launch per centre over all candidates, every distance
// canonical. Each block begins by finding the centre among what the blocks of the launch before
// left; the host never waits between centres.
#pragma once

#include <cmath>
#include <vector>

#include "cuda/kernels/device_stream.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

// Results of some candidates after a centre was chosen.
struct Farthest {
  double radius;            // largest squared distance
  double squared_distance;  // largest of those that are no centre, -1 if there is none
  std::int64_t candidate;   // who has it, the lowest

  // The result of two ranges of candidates.
  KVBENCH_DEVICE static Farthest join(const Farthest& a, const Farthest& b) {
    const bool later = b.squared_distance > a.squared_distance ||
                       (b.squared_distance == a.squared_distance && b.candidate < a.candidate);
    return {b.radius > a.radius ? b.radius : a.radius,
            later ? b.squared_distance : a.squared_distance, later ? b.candidate : a.candidate};
  }
};

// Dimension-major copy, so that neighbouring threads read neighbouring numbers.
struct TransposePoints {
  static constexpr int kThreads = 256;

  const double* points = nullptr;  // [count, d]
  Index count = 0;
  Index d = 0;
  double* transposed = nullptr;  // [d, count]

  struct Shared {
    double tile[32][32 + 1];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index row = block.x * 32;
    const Index column = block.y * 32;
    block.each(32 * 32, [&](Index i) {
      const Index r = row + i / 32;
      const Index c = column + i % 32;
      if (r < count && c < d) shared.tile[i / 32][i % 32] = points[r * d + c];
    });
    block.each(32 * 32, [&](Index i) {
      const Index r = row + i % 32;
      const Index c = column + i / 32;
      if (r < count && c < d) transposed[c * count + r] = shared.tile[i % 32][i / 32];
    });
  }
};

struct AddCenter {
  static constexpr int kThreads = 256;

  const double* transposed = nullptr;  // [d, candidates]
  Index candidates = 0;
  Index d = 0;
  Index place = 0;                   // the centre's, in order of choice
  Index start = 0;                   // the first centre, used for place 0
  Index blocks = 0;                  // blocks of each launch
  const Farthest* before = nullptr;  // [blocks] of the launch before
  Farthest* after = nullptr;         // [blocks]
  double* distance = nullptr;        // [candidates] squared, to the nearest centre
  std::int32_t* nearest = nullptr;   // [candidates], -1 before any centre at finite distance
  std::int32_t* chosen = nullptr;    // [candidates], 1 for centres
  std::int64_t* centers = nullptr;   // [count] candidates in order of choice
  double* radius = nullptr;          // [count] squared; that of a place is known one launch later

  struct Shared {
    Farthest of[kThreads];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    block.threads([&](int t) {
      Farthest mine = none();
      for (Index b = t; place > 0 && b < blocks; b += kThreads) {
        mine = Farthest::join(mine, before[b]);
      }
      shared.of[t] = mine;
    });
    const Farthest found = joined(block, shared);
    const Index center = place == 0 ? start : found.candidate;
    block.each(block.x == 0 ? 1 : 0, [&](Index) {
      centers[place] = center;
      if (place > 0) radius[place - 1] = found.radius;
    });
    block.threads([&](int t) {
      const Index j = block.x * kThreads + t;
      shared.of[t] = none();
      if (j >= candidates) return;
      double fresh = 0.0;
      for (Index k = 0; k < d; ++k) {
        fresh = DistanceStep::next(transposed[k * candidates + j],
                                   transposed[k * candidates + center], fresh);
      }
      double known = place == 0 ? infinity() : distance[j];
      if (place == 0) {
        nearest[j] = -1;
        chosen[j] = 0;
      }
      if (fresh < known) {
        known = fresh;
        nearest[j] = static_cast<std::int32_t>(place);
      }
      if (j == center) chosen[j] = 1;
      distance[j] = known;
      shared.of[t].radius = known;
      if (chosen[j] == 0) {
        shared.of[t].squared_distance = known;
        shared.of[t].candidate = j;
      }
    });
    const Farthest mine = joined(block, shared);
    block.each(1, [&](Index) { after[block.x] = mine; });
  }

  KVBENCH_DEVICE static Farthest none() { return {0.0, -1.0, INT64_MAX}; }

 private:
  template <Block B>
  KVBENCH_DEVICE static Farthest joined(B& block, Shared& shared) {
    for (int half = kThreads / 2; half > 0; half /= 2) {
      block.each(
          half, [&](Index t) { shared.of[t] = Farthest::join(shared.of[t], shared.of[t + half]); });
    }
    return block.uniform(shared.of[0]);
  }
};

template <Machine M>
Centers farthest_first(M& machine, ConstMatrix points, Index first, Index last, Index start,
                       Index count) {
  Centers out;
  const Index candidates = larger(0, last - first);
  count = smaller(count, candidates);
  out.nearest.assign(static_cast<std::size_t>(candidates), -1);
  if (count <= 0) return out;

  const Index d = points.cols;
  const Index blocks = blocks_of(AddCenter::kThreads, candidates);
  const auto farthest_bytes = static_cast<Index>(sizeof(Farthest));
  DeviceMatrix rows(machine, ConstMatrix(points.row(first), candidates, d, points.stride));
  const auto room = machine.reserve(
      {.what = "farthest-first",
       .fixed_bytes = rows.bytes() + bytes_of_doubles(candidates * d + 2 * candidates + 2 * count) +
                      2 * blocks * farthest_bytes});
  auto transposed = machine.template allocate<double>(candidates * d);
  auto even = machine.template allocate<Farthest>(blocks);
  auto odd = machine.template allocate<Farthest>(blocks);
  auto distance = machine.template allocate<double>(candidates);
  auto nearest = machine.template allocate<std::int32_t>(candidates);
  auto chosen = machine.template allocate<std::int32_t>(candidates);
  auto centers = machine.template allocate<std::int64_t>(count);
  auto radius = machine.template allocate<double>(count);
  TransposePoints transpose;
  transpose.points = rows.bring();
  transpose.count = candidates;
  transpose.d = d;
  transpose.transposed = transposed.data();
  machine.launch(transpose, {.x = blocks_of(32, candidates), .y = larger(1, blocks_of(32, d))});

  AddCenter add;
  add.transposed = transposed.data();
  add.candidates = candidates;
  add.d = d;
  add.start = start - first;
  add.blocks = blocks;
  add.distance = distance.data();
  add.nearest = nearest.data();
  add.chosen = chosen.data();
  add.centers = centers.data();
  add.radius = radius.data();
  for (Index place = 0; place < count; ++place) {
    add.place = place;
    add.before = place % 2 == 0 ? odd.data() : even.data();
    add.after = place % 2 == 0 ? even.data() : odd.data();
    machine.launch(add, {.x = blocks});
  }

  std::vector<std::int64_t> chosen_candidates(static_cast<std::size_t>(count));
  std::vector<Farthest> final_parts(static_cast<std::size_t>(blocks));
  out.radius.resize(static_cast<std::size_t>(count));
  machine.download(chosen_candidates.data(), centers.data(), count);
  machine.download(out.radius.data(), radius.data(), count - 1);
  machine.download(final_parts.data(), count % 2 == 1 ? even.data() : odd.data(), blocks);
  machine.download(out.nearest.data(), nearest.data(), candidates);
  out.radius.back() = 0.0;
  for (const Farthest& part : final_parts) {
    if (part.radius > out.radius.back()) out.radius.back() = part.radius;
  }
  for (double& each : out.radius) each = std::sqrt(each);
  for (const std::int64_t candidate : chosen_candidates) out.tokens.push_back(first + candidate);
  return out;
}

}  // namespace kvbench::cuda
