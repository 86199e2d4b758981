// Kernels::exact_attention on a device: blocked online softmax in double, products on tensor cores
// where there are any. A block of threads takes 64 places, a slice of the value's dimensions, and a
// span of tokens; spans are joined in order by a second kernel. Logits are not canonical: how four
// products are added is the device's choice. All else has a fixed order, so that on one kind of
// device the bits depend on the shape alone, not on how rows are split.
#pragma once

#include <utility>
#include <vector>

#include "cuda/kernels/device_stream.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

inline constexpr int kAttendPlaces = 64;
inline constexpr int kAttendTokens = 64;

// Softmax sums of a place over a span of tokens, relative to its own maximum.
struct SpanSums {
  double max_logit;  // -infinity where the place sees no token of the span
  double sum;
  double squared_sum;
};

// A warp takes 16 places. Their probabilities p never leave its registers: the lanes that get a
// tile of logits from Q K^T have it where P V wants it, if the tokens of a step are not four in a
// row but every second of eight. What is multiplied next comes to shared memory meanwhile.
template <int kSlice>  // value dimensions per block
struct AttendSpan {
  static constexpr int kThreads = kAttendPlaces * 2;
  static constexpr int kDepth = 16;  // dimensions, or tokens, multiplied between two barriers
  static constexpr int kSteps = kDepth / 4;
  using Logits = WarpTiles<16, kAttendTokens>;
  using Outputs = WarpTiles<16, kSlice>;

  StreamView stream;
  double inverse_softcap = 0.0;    // where there is one
  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  Index span = 0;             // tokens per span, a multiple of kAttendTokens
  SpanSums* sums = nullptr;   // [spans, places]
  double* outputs = nullptr;  // [spans, places, dv], not yet divided by the sum

  // Rows are so long that half a warp finds its numbers in 16 different banks.
  union Part {
    struct {
      double queries[kAttendPlaces][kDepth + 4];
      double keys[kAttendTokens][kDepth + 4];
    } products;
    double values[kDepth][kSlice + 2];
  };
  struct Shared {
    Part parts[2];            // one is multiplied while the other is fetched
    int rows[kAttendPlaces];  // -1 where there is no such place: it sees nothing
    // Of the four lanes that share a place. Registers have no room for them.
    double largest[kAttendPlaces][4];    // logits of this tile
    SpanSums running[kAttendPlaces][4];  // sums over a lane's own tokens, the maximum over all
  };
  // What a block works on: tokens [begin, end). There are fewer tokens than an int counts.
  struct Range {
    Index first_place;
    Index first_column;
    int begin;
    int end;
  };

  template <class Block>
  KVBENCH_DEVICE void operator()(Block& block, Shared& shared) const {
    const Range range = range_of(block);
    typename Block::template Own<Logits> p(block);
    typename Block::template Own<Outputs> own(block);
    block.threads([&](int t) {
      own[t] = Outputs{};
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        shared.running[place_of(t, i)][t % 4] = {-infinity(), 0.0, 0.0};
      }
    });
    block.each(kAttendPlaces, [&](Index q) {
      const Index place = range.first_place + q;
      shared.rows[q] = place < stream.places ? static_cast<int>(stream.row_of(place)) : -1;
    });

    int at = 0;
    if (range.begin < range.end) fetch_products(block, shared.parts[at], range, range.begin, 0);
    block.fetched();
    for (int start = range.begin; start < range.end; start += kAttendTokens) {
      block.threads([&](int t) { p[t] = Logits{}; });
      for (Index k = 0; k < stream.d; k += kDepth) {
        const Part& part = shared.parts[at];
        at = 1 - at;
        if (k + kDepth < stream.d) {
          fetch_products(block, shared.parts[at], range, start, k + kDepth);
        } else {
          fetch_values(block, shared.parts[at], range, start);
        }
        block.template multiply<kSteps>(
            p,
            [&](int t, int i, int s) {
              return part.products.queries[place_of(t, i)][4 * s + t % 4];
            },
            [&](int t, int j, int s) {
              return part.products.keys[8 * j + t % 32 / 4][4 * s + t % 4];
            });
      }
      exponentiate(block, shared, p, own, start);
      KVBENCH_UNROLL
      for (int first = 0; first < kAttendTokens; first += kDepth) {
        const Part& part = shared.parts[at];
        at = 1 - at;
        if (first + kDepth < kAttendTokens) {
          fetch_values(block, shared.parts[at], range, start + first + kDepth);
        } else if (start + kAttendTokens < range.end) {
          fetch_products(block, shared.parts[at], range, start + kAttendTokens, 0);
        }
        block.template multiply<kSteps>(
            own, [&](int t, int i, int s) { return p[t].of[i][(first + 4 * s) / 8][s % 2]; },
            [&](int t, int j, int s) {
              return part.values[Logits::column(t, s / 2, s % 2)][8 * j + t % 32 / 4];
            });
      }
    }
    store(block, shared, own, range);
  }

 private:
  KVBENCH_DEVICE static int place_of(int t, int i) { return t / 32 * 16 + Logits::row(t, i); }

  template <class Block>
  KVBENCH_DEVICE Range range_of(const Block& block) const {
    const Index blocks = blocks_of(kAttendPlaces, stream.places);
    Range range;
    range.first_place = (blocks - 1 - block.x) * kAttendPlaces;  // the longest rows first
    range.first_column = block.y * kSlice;
    const Index last_place = smaller(range.first_place + kAttendPlaces, stream.places) - 1;
    const Index first_token = stream.first_visible(stream.row_of(range.first_place));
    const Index last_row = stream.row_of(last_place);
    range.begin =
        static_cast<int>(larger(block.z * span, first_token / kAttendTokens * kAttendTokens));
    range.end = static_cast<int>(smaller((block.z + 1) * span, last_row + 1));
    return range;
  }

  template <class Block>
  KVBENCH_DEVICE void fetch_products(Block& block, Part& part, const Range& range, int start,
                                     Index k) const {
    const Index d = stream.d;
    block.template fetch<kDepth>(part.products.queries, stream.queries + range.first_place * d + k,
                                 d, stream.places - range.first_place, d - k);
    block.template fetch<kDepth>(part.products.keys, stream.keys + Index{start} * d + k, d,
                                 range.end - start, d - k);
  }
  template <class Block>
  KVBENCH_DEVICE void fetch_values(Block& block, Part& part, const Range& range, int start) const {
    block.template fetch<kSlice>(part.values, values + Index{start} * dv + range.first_column, dv,
                                 range.end - start, dv - range.first_column);
  }

  // From products to p = exp(logit - maximum so far); what was gathered before is scaled to the new
  // maximum. Tokens that a place does not see have logits of -infinity, and canonical_exp is 0 both
  // there and for the NaN of -infinity - -infinity, where a place has not seen any.
  template <class Block>
  KVBENCH_DEVICE void exponentiate(Block& block, Shared& shared,
                                   typename Block::template Own<Logits>& p,
                                   typename Block::template Own<Outputs>& own, int start) const {
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int q = place_of(t, i);
        const int from = static_cast<int>(stream.first_visible(shared.rows[q])) - start;
        const int to = shared.rows[q] - start;
        double largest = -infinity();
        each_of(p[t], i, [&](int column, double& x) {
          const int token = column + t % 4 * 2;
          x = token >= from && token <= to ? logit(x) : -infinity();
          largest = x > largest ? x : largest;
        });
        shared.largest[q][t % 4] = largest;
      }
    });
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int q = place_of(t, i);
        SpanSums run = shared.running[q][t % 4];
        const double before = run.max_logit;
        for (const double x : shared.largest[q]) {
          run.max_logit = x > run.max_logit ? x : run.max_logit;
        }
        const double rescale = scalar::canonical_exp(before - run.max_logit);
        run.sum *= rescale;
        run.squared_sum *= rescale * rescale;
        each_of(p[t], i, [&](int, double& x) {
          x = scalar::canonical_exp(x - run.max_logit);
          run.sum += x;
          run.squared_sum = scalar::fused(x, x, run.squared_sum);
        });
        shared.running[q][t % 4] = run;
        each_of(own[t], i, [&](int, double& x) { x *= rescale; });
      }
    });
  }
  // each(column - 2 (t % 4), number) over what a thread has of one of its two places.
  template <class Tiles, class Each>
  KVBENCH_DEVICE static void each_of(Tiles& tiles, int i, const Each& each) {
    constexpr int kAcross = sizeof(tiles.of[0]) / sizeof(tiles.of[0][0]);
    KVBENCH_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      each(8 * j, tiles.of[i][j][0]);
      each(8 * j + 1, tiles.of[i][j][1]);
    }
  }
  // StreamView::logit without its divisions, which take the registers that the sums need.
  KVBENCH_DEVICE double logit(double dot) const {
    const double x = stream.scale * dot;
    if (!(stream.softcap > 0.0)) return x;
    const double e = scalar::canonical_exp(-2.0 * fabs(x * inverse_softcap));
    return stream.softcap * copysign((1.0 - e) * inverse_in_1_2(1.0 + e), x);
  }
  // 1 / y of y in [1, 2] by Newton's iteration, from the line that is off by 1 / 17 at most: four
  // steps square that to 1e-19 or less.
  KVBENCH_DEVICE static double inverse_in_1_2(double y) {
    double inverse = scalar::fused(-8.0 / 17.0, y, 24.0 / 17.0);
    for (int i = 0; i < 4; ++i) {
      inverse = scalar::fused(inverse, scalar::fused(-y, inverse, 1.0), inverse);
    }
    return inverse;
  }

  template <class Block>
  KVBENCH_DEVICE void store(Block& block, Shared& shared,
                            typename Block::template Own<Outputs>& own, const Range& range) const {
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Index place = range.first_place + place_of(t, i);
        double* out = outputs + (block.z * stream.places + place) * dv;
        const Index first = range.first_column + t % 4 * 2;
        each_of(own[t], i, [&](int column, double x) {
          if (place < stream.places && first + column < dv) out[first + column] = x;
        });
      }
    });
    if (block.y != 0) return;
    block.each(smaller(kAttendPlaces, stream.places - range.first_place), [&](Index q) {
      const SpanSums* lanes = shared.running[q];
      SpanSums total = lanes[0];
      for (int i = 1; i < 4; ++i) {
        total.sum += lanes[i].sum;
        total.squared_sum += lanes[i].squared_sum;
      }
      sums[block.z * stream.places + range.first_place + q] = total;
    });
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
    const StreamView view = device.at(out.rows.data() + first, batch);
    const Index n = view.places;
    const auto attend = [&]<int kSlice>(AttendSpan<kSlice> body) {
      body.stream = view;
      if (view.softcap > 0.0) body.inverse_softcap = 1.0 / view.softcap;
      body.values = device_values;
      body.dv = shape.dv;
      body.span = span;
      body.sums = span_sums.data();
      body.outputs = span_outputs.data();
      machine.launch(body, {.x = blocks_of(kAttendPlaces, n),
                            .y = larger(1, blocks_of(kSlice, shape.dv)),
                            .z = spans});
    };
    if (shape.dv <= 64) {
      attend(AttendSpan<64>());
    } else {
      attend(AttendSpan<128>());
    }
    JoinSpans join;
    join.places = n;
    join.spans = spans;
    join.dv = shape.dv;
    join.sums = span_sums.data();
    join.span_outputs = span_outputs.data();
    join.joined = sums.data();
    join.outputs = outputs.data();
    machine.launch(join, {.x = n});
    // The first time the host fills its memory beside the device's work.
    out.outputs.resize(places * static_cast<std::size_t>(shape.dv));
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
