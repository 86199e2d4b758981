// Kernels::cluster on a device: SubGen's delta-net, every distance canonical. Tokens are taken 256
// at a time: the whole device computes their distances to the representatives so far and to each
// other, then one block settles them in order, with a few barriers per cluster that opens and none
// for a token that joins. The number of representatives stays on the device; the host never waits
// within a stream.
#pragma once

#include <vector>

#include "cuda/kernels/device_stream.hpp"
#include "cuda/kernels/product_tile.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

inline constexpr int kClusterBatch = 256;  // tokens settled at a time

// The nearest of some representatives: ties go to the oldest. `cluster` is -1 if none is at a
// finite distance.
struct Nearest {
  double squared_distance;
  std::int32_t cluster;
};

// State of one stream's clustering on the device.
struct NetView {
  const double* points = nullptr;  // [n, d]
  Index d = 0;
  Index first = 0;  // first token
  double delta = 0.0;
  std::int32_t* clusters = nullptr;    // [1] m' so far
  std::int32_t* opened_by = nullptr;   // [last - first]
  std::int32_t* assignment = nullptr;  // [last - first]
  Nearest* nearest = nullptr;          // [tiles of 64 representatives, kClusterBatch]
  double* between = nullptr;           // [kClusterBatch, kClusterBatch] squared distances

  KVBENCH_DEVICE const double* point(Index token) const { return points + token * d; }
};

// Distances of a batch's tokens to 64 representatives (block.x >= kClusterBatch / 64) or to 64 of
// its own tokens (below); block.y: which 64 tokens of the batch.
struct MeasureBatch {
  using Tile = ProductTile<64, 64>;
  static constexpr int kThreads = Tile::kThreads;
  static constexpr int kOwnTiles = kClusterBatch / 64;

  NetView net;
  Index begin = 0;  // the batch's first token
  Index end = 0;

  struct Shared {
    Tile::Shared tile;
    double distance[64][64 + 1];
    std::int32_t clusters;
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index first_token = begin + block.y * 64;
    const auto token = [&](int i) {
      return first_token + i < end ? net.point(first_token + i) : nullptr;
    };
    typename B::template Own<Tile::Values> own(block);
    if (block.x < kOwnTiles) {
      const Index first_other = begin + block.x * 64;
      Tile::template compute<DistanceStep>(block, own, shared.tile, net.d, token, [&](int j) {
        return first_other + j < end ? net.point(first_other + j) : nullptr;
      });
      block.threads([&](int t) {
        for (int r = 0; r < 4; ++r) {
          for (int c = 0; c < 4; ++c) {
            net.between[(block.y * 64 + Tile::left_of(t, r)) * kClusterBatch + block.x * 64 +
                        Tile::right_of(t, c)] = own[t].of[r][c];
          }
        }
      });
      return;
    }
    block.each(1, [&](Index) { shared.clusters = *net.clusters; });
    const Index first_cluster = (block.x - kOwnTiles) * 64;
    const Index known = block.uniform(shared.clusters);
    if (first_cluster >= known) return;
    Tile::template compute<DistanceStep>(block, own, shared.tile, net.d, token, [&](int j) {
      return first_cluster + j < known ? net.point(net.opened_by[first_cluster + j]) : nullptr;
    });
    Tile::store(block, own, shared.distance);
    block.each(64, [&](Index i) {
      Nearest best{infinity(), -1};
      for (int j = 0; j < smaller(64, known - first_cluster); ++j) {
        if (shared.distance[i][j] < best.squared_distance) {
          best = {shared.distance[i][j], static_cast<std::int32_t>(first_cluster + j)};
        }
      }
      net.nearest[first_cluster / 64 * kClusterBatch + block.y * 64 + i] = best;
    });
  }
};

// Settles a batch in order of its tokens; one block.
struct SettleBatch {
  static constexpr int kThreads = kClusterBatch;

  NetView net;
  Index begin = 0;
  Index end = 0;

  struct Shared {
    Nearest best[kClusterBatch];
    std::int32_t opener[kClusterBatch];  // smallest token of a pair, a quad, .. that opens
    std::int32_t clusters;
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const int count = static_cast<int>(end - begin);
    block.each(1, [&](Index) { shared.clusters = *net.clusters; });
    const std::int32_t known = block.uniform(shared.clusters);
    block.each(count, [&](Index i) {
      Nearest best{infinity(), -1};
      for (Index tile = 0; tile < blocks_of(64, known); ++tile) {
        const Nearest& other = net.nearest[tile * kClusterBatch + i];
        if (other.squared_distance < best.squared_distance) best = other;
      }
      shared.best[i] = best;
    });
    int settled = 0;  // tokens before this one have their cluster
    while (settled < count) {
      const int opener = first_opener(block, shared, settled, count);
      block.each(opener - settled, [&](Index i) {
        net.assignment[begin - net.first + settled + i] = shared.best[settled + i].cluster;
      });
      settled = opener;
      if (opener == count) break;
      block.each(count - opener, [&](Index i) {
        // The new cluster is the youngest: it wins if it is strictly nearer.
        const Index token = opener + i;
        const std::int32_t cluster = shared.clusters;
        const double distance = net.between[token * kClusterBatch + opener];
        if (i == 0) {
          net.assignment[begin - net.first + opener] = cluster;
          net.opened_by[cluster] = static_cast<std::int32_t>(begin + opener);
        } else if (distance < shared.best[token].squared_distance) {
          shared.best[token] = {distance, cluster};
        }
      });
      block.each(1, [&](Index) { ++shared.clusters; });
      settled = opener + 1;
    }
    block.each(1, [&](Index) { *net.clusters = shared.clusters; });
  }

 private:
  // The first token from `from` on that is farther than delta from all representatives, or `count`.
  template <Block B>
  KVBENCH_DEVICE int first_opener(B& block, Shared& shared, int from, int count) const {
    block.threads([&](int t) {
      const bool opens =
          t >= from && t < count &&
          (shared.best[t].cluster < 0 || sqrt(shared.best[t].squared_distance) > net.delta);
      shared.opener[t] = opens ? t : count;
    });
    for (int half = kThreads / 2; half > 0; half /= 2) {
      block.each(half, [&](Index t) {
        const std::int32_t other = shared.opener[t + half];
        shared.opener[t] = other < shared.opener[t] ? other : shared.opener[t];
      });
    }
    return block.uniform(shared.opener[0]);
  }
};

template <Machine M>
Clustering cluster(M& machine, ConstMatrix points, Index first, double delta) {
  Clustering out;
  out.delta = delta;
  out.first = first;
  const Index n = points.rows;
  const Index count = larger(0, n - first);
  if (count == 0) return out;
  const Index tiles = blocks_of(64, count);
  const auto int_bytes = static_cast<Index>(sizeof(std::int32_t));
  DeviceMatrix device_points(machine, points);
  const auto room = machine.reserve(
      {.what = "clustering",
       .fixed_bytes = device_points.bytes() + bytes_of_doubles(kClusterBatch * kClusterBatch) +
                      (2 * count + 1) * int_bytes +
                      tiles * kClusterBatch * static_cast<Index>(sizeof(Nearest))});
  auto between = machine.template allocate<double>(kClusterBatch * kClusterBatch);
  auto clusters = machine.template allocate<std::int32_t>(1);
  auto opened_by = machine.template allocate<std::int32_t>(count);
  auto assignment = machine.template allocate<std::int32_t>(count);
  auto nearest = machine.template allocate<Nearest>(tiles * kClusterBatch);
  machine.clear(clusters.data(), 1);

  NetView net;
  net.points = device_points.bring();
  net.d = points.cols;
  net.first = first;
  net.delta = delta;
  net.clusters = clusters.data();
  net.opened_by = opened_by.data();
  net.assignment = assignment.data();
  net.nearest = nearest.data();
  net.between = between.data();
  for (Index begin = first; begin < n; begin += kClusterBatch) {
    const Index end = smaller(begin + kClusterBatch, n);
    MeasureBatch measure;
    measure.net = net;
    measure.begin = begin;
    measure.end = end;
    // As many tiles of representatives as there can be; those beyond return at once.
    machine.launch(measure, {.x = MeasureBatch::kOwnTiles + blocks_of(64, begin - first),
                             .y = blocks_of(64, end - begin)});
    SettleBatch settle;
    settle.net = net;
    settle.begin = begin;
    settle.end = end;
    machine.launch(settle, {});
  }
  std::int32_t opened = 0;
  machine.download(&opened, clusters.data(), 1);
  out.opened_by.resize(static_cast<std::size_t>(opened));
  out.assignment.resize(static_cast<std::size_t>(count));
  machine.download(out.opened_by.data(), opened_by.data(), opened);
  machine.download(out.assignment.data(), assignment.data(), count);
  return out;
}

}  // namespace kvbench::cuda
