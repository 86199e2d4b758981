// Kernels::score_sums on a device. Scores decide which tokens a method keeps, so every sum has the
// order of lib/kernels/score_sums.cpp: a row's normaliser gathers tiles of 256 tokens, eight
// partial sums each; a token's sum gathers rows in ascending order.
#pragma once

#include <vector>

#include "core/logit_draw.hpp"
#include "cuda/kernels/device_stream.hpp"
#include "cuda/kernels/product_tile.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

inline constexpr int kScoreTileTokens = 256;  // tiles of the order of summation

// ScoreRule as data that travels to a device.
struct ScoreView {
  LogitDraw noise;
  double temperature = 1.0;
  double decay = 1.0;
  double gain = 1.0;

  KVBENCH_DEVICE double apply(double logit, Index query_head, Index row, Index token) const {
    if (noise.kind == LogitNoise::Kind::kNone && temperature == 1.0) return logit;
    return (logit + noise(static_cast<std::uint32_t>(query_head), static_cast<std::uint32_t>(row),
                          static_cast<std::uint32_t>(token))) /
           temperature;
  }
};

// Softmax statistics of a place: the maximum and 1 / sum exp(x - max).
struct RowStatistics {
  double max_logit;
  double inverse_sum;
};

// One block per 16 places.
struct GatherStatistics {
  static constexpr int kPlaces = 16;
  using Tile = ProductTile<kPlaces, kScoreTileTokens>;
  static constexpr int kThreads = Tile::kThreads;
  static constexpr int kLanes = 8;

  StreamView stream;
  ScoreView rule;
  RowStatistics* statistics = nullptr;  // [places]

  struct Shared {
    union {
      Tile::Shared tile;
      double x[kPlaces][kScoreTileTokens + 1];
    };
    double partial[kPlaces][kLanes];
    double max_logit[kPlaces];
    double sum[kPlaces];
    bool sees_tile[kPlaces];
    Index row[kPlaces];  // -1 past the last place: sees nothing
    Index head[kPlaces];
  };

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared& shared) const {
    const Index blocks = blocks_of(kPlaces, stream.places);
    const Index first_place = (blocks - 1 - block.x) * kPlaces;  // the longest rows first
    const Index last_place = smaller(first_place + kPlaces, stream.places) - 1;
    const Index begin =
        stream.first_visible(stream.row_of(first_place)) / kScoreTileTokens * kScoreTileTokens;
    const Index end = stream.row_of(last_place) + 1;
    typename Block::template Own<Tile::Values> own(block);
    block.each(kPlaces, [&](Index q) {
      const Index place = first_place + q;
      shared.row[q] = place <= last_place ? stream.row_of(place) : -1;
      shared.head[q] = place % stream.group;
      shared.max_logit[q] = -infinity();
      shared.sum[q] = 0.0;
    });
    for (Index start = begin; start < end; start += kScoreTileTokens) {
      Tile::template compute<scalar::DotStep>(
          block, own, shared.tile, stream.d, [&](int q) { return stream.query(first_place + q); },
          [&](int j) { return stream.key(start + j, end); });
      Tile::store(block, own, shared.x);
      block.each(kPlaces * kScoreTileTokens, [&](Index i) {
        const Index q = i / kScoreTileTokens;
        const Index token = start + i % kScoreTileTokens;
        double& x = shared.x[q][i % kScoreTileTokens];
        x = stream.sees(shared.row[q], token)
                ? rule.apply(stream.logit(x), shared.head[q], shared.row[q], token)
                : -infinity();
      });
      block.each(kPlaces * kLanes, [&](Index i) {
        const Index q = i / kLanes;
        double largest = -infinity();
        for (Index j = i % kLanes; j < kScoreTileTokens; j += kLanes) {
          largest = largest > shared.x[q][j] ? largest : shared.x[q][j];
        }
        shared.partial[q][i % kLanes] = largest;
      });
      block.each(kPlaces, [&](Index q) {
        double m_tile = shared.partial[q][0];
        for (int lane = 1; lane < kLanes; ++lane) {
          m_tile = shared.partial[q][lane] > m_tile ? shared.partial[q][lane] : m_tile;
        }
        shared.sees_tile[q] = m_tile != -infinity();
        double& m = shared.max_logit[q];
        if (m_tile > m) {
          if (m != -infinity()) shared.sum[q] *= scalar::canonical_exp(m - m_tile);
          m = m_tile;
        }
      });
      block.each(kPlaces * kLanes, [&](Index i) {
        const Index q = i / kLanes;
        double total = 0.0;
        for (Index j = i % kLanes; shared.sees_tile[q] && j < kScoreTileTokens; j += kLanes) {
          total = total + scalar::canonical_exp(shared.x[q][j] - shared.max_logit[q]);
        }
        shared.partial[q][i % kLanes] = total;
      });
      block.each(kPlaces, [&](Index q) {
        if (shared.sees_tile[q]) shared.sum[q] += scalar::lanes_sum(shared.partial[q]);
      });
    }
    block.each(kPlaces, [&](Index q) {
      if (first_place + q > last_place) return;
      statistics[first_place + q] = {shared.max_logit[q], 1.0 / shared.sum[q]};
    });
  }
};

// One block per 64 tokens and query head: f = decay f + gain score over the rows of the batch that
// the CPU's tile of 256 tokens takes, in ascending order.
struct GatherScores {
  using Tile = ProductTile<64, 64>;
  static constexpr int kThreads = Tile::kThreads;

  StreamView stream;
  ScoreView rule;
  const RowStatistics* statistics = nullptr;  // [places]
  Index tokens = 0;                           // n
  Index first_row = 0;                        // rows of the batch: [first_row, last_row)
  Index last_row = 0;
  Index first_block = 0;   // the first block's tokens begin at 64 * first_block
  double* sums = nullptr;  // [G, n]

  struct Shared {
    union {
      Tile::Shared tile;
      double score[64][64 + 1];  // row, token
    };
  };

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared& shared) const {
    const Index g = block.y;
    const Index start = (first_block + block.x) * 64;
    const Index tile_start = start / kScoreTileTokens * kScoreTileTokens;
    Index end = last_row;
    if (stream.window > 0) end = smaller(end, tile_start + kScoreTileTokens - 1 + stream.window);
    typename Block::template Own<Tile::Values> own(block);
    for (Index row = larger(first_row, tile_start); row < end; row += 64) {
      const Index count = smaller(64, end - row);
      const Index first_place = (row - first_row) * stream.group + g;
      Tile::template compute<scalar::DotStep>(
          block, own, shared.tile, stream.d,
          [&](int r) { return r < count ? stream.query(first_place + r * stream.group) : nullptr; },
          [&](int j) { return stream.key(start + j, smaller(tokens, last_row)); });
      Tile::store(block, own, shared.score);
      block.each(64 * 64, [&](Index e) {
        const Index r = e / 64;
        const Index token = start + e % 64;
        double& score = shared.score[r][e % 64];
        if (row + r >= end || !stream.sees(row + r, token)) {
          score = 0.0;
          return;
        }
        const RowStatistics& s = statistics[first_place + r * stream.group];
        const double x = rule.apply(stream.logit(score), g, row + r, token);
        score = scalar::canonical_exp(x - s.max_logit) * (rule.gain * s.inverse_sum);
      });
      block.each(64, [&](Index j) {
        if (start + j >= tokens) return;
        double f = sums[g * tokens + start + j];
        for (Index r = 0; r < count; ++r) f = scalar::fused(rule.decay, f, shared.score[r][j]);
        sums[g * tokens + start + j] = f;
      });
    }
  }
};

template <class Machine>
std::vector<std::vector<double>> score_sums(Machine& machine, const Stream& stream, Index first,
                                            Index last, const ScoreRule& rule) {
  const StreamShape& shape = stream.shape;
  const Index n = shape.tokens;
  std::vector<std::vector<double>> out(static_cast<std::size_t>(shape.group),
                                       std::vector<double>(static_cast<std::size_t>(n), 0.0));
  if (last <= first) return out;

  const ScoreView view{logit_draw(rule.noise), rule.temperature, rule.decay, rule.gain};
  using Keys = DeviceStream<Machine>;
  const auto room = machine.reserve(
      {.what = "score sums",
       .fixed_bytes = Keys::fixed_bytes(shape, last) + bytes_of_doubles(shape.group * n),
       .row_bytes = Keys::row_bytes(shape) + bytes_of_doubles(2 * shape.group),
       .rows = last - first});
  Keys device(machine, stream, last, room.rows());
  auto statistics = machine.template allocate<RowStatistics>(room.rows() * shape.group);
  auto sums = machine.template allocate<double>(shape.group * n);
  machine.clear(sums.data(), shape.group * n);
  std::vector<Index> rows;
  for (Index from = first; from < last; from += room.rows()) {
    rows.clear();
    for (Index i = from; i < smaller(from + room.rows(), last); ++i) rows.push_back(i);
    GatherStatistics gather;
    gather.stream = device.at(rows.data(), static_cast<Index>(rows.size()));
    gather.rule = view;
    gather.statistics = statistics.data();
    machine.launch(gather, {.x = blocks_of(GatherStatistics::kPlaces, gather.stream.places)});
    GatherScores scores;
    scores.stream = gather.stream;
    scores.rule = view;
    scores.statistics = statistics.data();
    scores.tokens = n;
    scores.first_row = from;
    scores.last_row = rows.back() + 1;
    scores.first_block = shape.first_visible(from) / kScoreTileTokens * (kScoreTileTokens / 64);
    scores.sums = sums.data();
    machine.launch(scores,
                   {.x = blocks_of(64, scores.last_row) - scores.first_block, .y = shape.group});
  }
  for (Index g = 0; g < shape.group; ++g) {
    machine.download(out[static_cast<std::size_t>(g)].data(), sums.data() + g * n, n);
  }
  return out;
}

}  // namespace kvbench::cuda
