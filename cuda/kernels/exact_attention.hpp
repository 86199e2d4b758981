// Kernels::exact_attention on a device: blocked online softmax in double. A block of threads takes
// 64 places, a slice of the value's dimensions, and a span of tokens; spans are joined in order by
// a second kernel. Logits are canonical, sums run in a fixed order: the bits do not depend on how
// rows are split or on the device.
#pragma once

#include <utility>
#include <vector>

#include "cuda/kernels/device_stream.hpp"
#include "cuda/kernels/product_tile.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

inline constexpr int kAttendPlaces = 64;
inline constexpr int kAttendTokens = 64;
inline constexpr int kAttendSlice = 128;  // value dimensions per block

// Softmax sums of a place over a span of tokens, relative to its own maximum.
struct SpanSums {
  double max_logit;  // -infinity where the place sees no token of the span
  double sum;
  double squared_sum;
};

struct AttendSpan {
  using Tile = ProductTile<kAttendPlaces, kAttendTokens>;
  static constexpr int kThreads = Tile::kThreads;
  static constexpr int kValueTokens = 16;  // tokens whose values are in shared memory at a time
  static constexpr int kAcross = 16;       // threads along the slice, 8 dimensions each

  StreamView stream;
  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  Index span = 0;             // tokens per span, a multiple of kAttendTokens
  SpanSums* sums = nullptr;   // [spans, places]
  double* outputs = nullptr;  // [spans, places, dv], not yet divided by the sum

  struct Shared {
    union {
      Tile::Shared tile;
      double values[kValueTokens][kAttendSlice + 1];
    };
    double p[kAttendPlaces][kAttendTokens + 1];  // logits, then exp(x - m)
    SpanSums running[kAttendPlaces];
    double rescale[kAttendPlaces];
  };
  struct Outputs {
    double of[4][kAttendSlice / kAcross];
  };

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared& shared) const {
    const Index blocks = blocks_of(kAttendPlaces, stream.places);
    const Index first_place = (blocks - 1 - block.x) * kAttendPlaces;  // the longest rows first
    const Index last_place = smaller(first_place + kAttendPlaces, stream.places) - 1;
    const Index first_column = block.y * kAttendSlice;
    const Index begin = larger(block.z * span, stream.first_visible(stream.row_of(first_place)) /
                                                   kAttendTokens * kAttendTokens);
    const Index end = smaller((block.z + 1) * span, stream.row_of(last_place) + 1);

    typename Block::template Own<Tile::Values> logits(block);
    typename Block::template Own<Outputs> own(block);
    block.threads([&](int t) { own[t] = Outputs{}; });
    block.each(kAttendPlaces, [&](Index q) { shared.running[q] = {-infinity(), 0.0, 0.0}; });

    for (Index start = begin; start < end; start += kAttendTokens) {
      Tile::template compute<scalar::DotStep>(
          block, logits, shared.tile, stream.d,
          [&](int q) { return stream.query(first_place + q); },
          [&](int j) { return stream.key(start + j, end); });
      block.threads([&](int t) {
        for (int r = 0; r < 4; ++r) {
          const int q = Tile::left_of(t, r);
          const Index place = first_place + q;
          const Index row = place <= last_place ? stream.row_of(place) : -1;  // -1 sees nothing
          for (int c = 0; c < 4; ++c) {
            const int j = Tile::right_of(t, c);
            shared.p[q][j] =
                stream.sees(row, start + j) ? stream.logit(logits[t].of[r][c]) : -infinity();
          }
        }
      });
      block.each(kAttendPlaces, [&](Index q) {
        SpanSums& run = shared.running[q];
        const double before = run.max_logit;
        for (int j = 0; j < kAttendTokens; ++j) {
          run.max_logit = shared.p[q][j] > run.max_logit ? shared.p[q][j] : run.max_logit;
        }
        shared.rescale[q] =
            before == -infinity() ? 0.0 : scalar::canonical_exp(before - run.max_logit);
      });
      block.each(kAttendPlaces * kAttendTokens, [&](Index i) {
        double& p = shared.p[i / kAttendTokens][i % kAttendTokens];
        p = p == -infinity()
                ? 0.0
                : scalar::canonical_exp(p - shared.running[i / kAttendTokens].max_logit);
      });
      block.each(kAttendPlaces, [&](Index q) {
        double sum = 0.0;
        double squared = 0.0;
        for (int j = 0; j < kAttendTokens; ++j) {
          sum += shared.p[q][j];
          squared = scalar::fused(shared.p[q][j], shared.p[q][j], squared);
        }
        SpanSums& run = shared.running[q];
        const double rescale = shared.rescale[q];
        run.sum = run.sum * rescale + sum;
        run.squared_sum = run.squared_sum * rescale * rescale + squared;
      });
      add_values(block, own, shared, start, end, first_column);
    }

    block.threads([&](int t) {
      for (int r = 0; r < 4; ++r) {
        const Index place = first_place + t / kAcross * 4 + r;
        if (place > last_place) continue;
        double* out = outputs + (block.z * stream.places + place) * dv;
        for (int c = 0; c < kAttendSlice / kAcross; ++c) {
          const Index k = first_column + t % kAcross + kAcross * c;
          if (k < dv) out[k] = own[t].of[r][c];
        }
      }
    });
    if (block.y != 0) return;
    block.each(kAttendPlaces, [&](Index q) {
      if (first_place + q > last_place) return;
      sums[block.z * stream.places + first_place + q] = shared.running[q];
    });
  }

 private:
  // own = own * rescale + p V over the tile's tokens.
  template <class Block>
  KVBENCH_DEVICE void add_values(Block& block, typename Block::template Own<Outputs>& own,
                                 Shared& shared, Index start, Index end, Index first_column) const {
    for (int part = 0; part < kAttendTokens; part += kValueTokens) {
      block.each(kValueTokens * kAttendSlice, [&](Index i) {
        const Index token = start + part + i / kAttendSlice;
        const Index k = first_column + i % kAttendSlice;
        shared.values[i / kAttendSlice][i % kAttendSlice] =
            token < end && k < dv ? values[token * dv + k] : 0.0;
      });
      block.threads([&](int t) {
        Outputs& out = own[t];
        const int first = t / kAcross * 4;
        for (int r = 0; part == 0 && r < 4; ++r) {
          for (int c = 0; c < kAttendSlice / kAcross; ++c)
            out.of[r][c] *= shared.rescale[first + r];
        }
        for (int j = 0; j < kValueTokens; ++j) {
          double p[4];
          for (int r = 0; r < 4; ++r) p[r] = shared.p[first + r][part + j];
          for (int c = 0; c < kAttendSlice / kAcross; ++c) {
            const double v = shared.values[j][t % kAcross + kAcross * c];
            for (int r = 0; r < 4; ++r) out.of[r][c] = scalar::fused(p[r], v, out.of[r][c]);
          }
        }
      });
    }
  }
};

// Joins the spans of one place per block.
struct JoinSpans {
  static constexpr int kThreads = 128;

  Index places = 0;
  Index spans = 0;
  Index dv = 0;
  const SpanSums* sums = nullptr;        // [spans, places]
  const double* span_outputs = nullptr;  // [spans, places, dv]
  SpanSums* joined = nullptr;            // [places]
  double* outputs = nullptr;             // [places, dv]

  struct Shared {
    SpanSums total;
  };

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared& shared) const {
    const Index place = block.x;
    block.each(1, [&](Index) {
      SpanSums total{-infinity(), 0.0, 0.0};
      for (Index s = 0; s < spans; ++s) {
        const double m = sums[s * places + place].max_logit;
        total.max_logit = m > total.max_logit ? m : total.max_logit;
      }
      for (Index s = 0; s < spans; ++s) {
        const SpanSums& part = sums[s * places + place];
        const double factor = weight(part, total);
        total.sum = scalar::fused(part.sum, factor, total.sum);
        total.squared_sum = scalar::fused(part.squared_sum, factor * factor, total.squared_sum);
      }
      shared.total = total;
      joined[place] = total;
    });
    block.each(dv, [&](Index k) {
      double output = 0.0;
      for (Index s = 0; s < spans; ++s) {
        output = scalar::fused(span_outputs[(s * places + place) * dv + k],
                               weight(sums[s * places + place], shared.total), output);
      }
      outputs[place * dv + k] = output / shared.total.sum;
    });
  }

 private:
  KVBENCH_DEVICE static double weight(const SpanSums& part, const SpanSums& total) {
    return part.max_logit == -infinity() ? 0.0
                                         : scalar::canonical_exp(part.max_logit - total.max_logit);
  }
};

template <class Machine>
ExactRows exact_attention(Machine& machine, const Stream& stream, std::vector<Index> rows) {
  const StreamShape& shape = stream.shape;
  ExactRows out;
  out.rows = std::move(rows);
  const Index count = static_cast<Index>(out.rows.size());
  const Index group = shape.group;
  const auto places = static_cast<std::size_t>(count * group);
  out.outputs.resize(places * static_cast<std::size_t>(shape.dv));
  out.max_logit.resize(places);
  out.normalizer.resize(places);
  out.squared_sum.resize(places);
  if (count == 0) return out;

  // Few places are spread over the device by splitting their tokens; the rule knows the shape
  // alone.
  const Index tokens = out.rows.back() + 1;
  const Index span =
      count * group >= 32768 ? blocks_of(kAttendTokens, tokens) * kAttendTokens : 1024;
  const Index spans = blocks_of(span, tokens);
  using Rows = DeviceStream<Machine>;
  const Index per_place = bytes_of_doubles((spans + 1) * (shape.dv + 3));
  DeviceMatrix keys(machine, first_rows(stream.keys, tokens));
  DeviceMatrix values(machine, first_rows(stream.values, tokens));
  const auto room = machine.reserve({.what = "exact attention",
                                     .fixed_bytes = keys.bytes() + values.bytes(),
                                     .row_bytes = Rows::row_bytes(shape) + group * per_place,
                                     .rows = count});
  const Index at_once = room.rows() * group;
  Rows device(machine, stream, keys.bring(), room.rows());
  const double* device_values = values.bring();
  auto span_sums = machine.template allocate<SpanSums>(spans * at_once);
  auto span_outputs = machine.template allocate<double>(spans * at_once * shape.dv);
  auto sums = machine.template allocate<SpanSums>(at_once);
  auto outputs = machine.template allocate<double>(at_once * shape.dv);

  std::vector<SpanSums> joined(static_cast<std::size_t>(at_once));
  for (Index first = 0; first < count; first += room.rows()) {
    const Index batch = smaller(room.rows(), count - first);
    AttendSpan attend;
    attend.stream = device.at(out.rows.data() + first, batch);
    attend.values = device_values;
    attend.dv = shape.dv;
    attend.span = span;
    attend.sums = span_sums.data();
    attend.outputs = span_outputs.data();
    const Index n = attend.stream.places;
    machine.launch(attend, {.x = blocks_of(kAttendPlaces, n),
                            .y = larger(1, blocks_of(kAttendSlice, shape.dv)),
                            .z = spans});
    JoinSpans join;
    join.places = n;
    join.spans = spans;
    join.dv = shape.dv;
    join.sums = span_sums.data();
    join.span_outputs = span_outputs.data();
    join.joined = sums.data();
    join.outputs = outputs.data();
    machine.launch(join, {.x = n});
    machine.download(out.outputs.data() + first * group * shape.dv, outputs.data(), n * shape.dv);
    machine.download(joined.data(), sums.data(), n);
    for (Index i = 0; i < n; ++i) {
      const auto place = static_cast<std::size_t>(first * group + i);
      const SpanSums& total = joined[static_cast<std::size_t>(i)];
      out.max_logit[place] = total.max_logit;
      out.normalizer[place] = total.sum;
      out.squared_sum[place] = total.squared_sum;
    }
  }
  return out;
}

}  // namespace kvbench::cuda
