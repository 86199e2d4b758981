// Kernels::exact_attention on a device: blocked online softmax in double, products on tensor cores
// if there are any. A block of threads takes 64 queries, a slice of the value's dimensions, and a
// span of tokens; spans are joined in order by a second kernel. Logits are not canonical: how four
// products are added is the device's choice. All else has a fixed order, so that on one kind of
// device the bits depend on the shape alone, not on how rows are split.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "core/parallel.hpp"
#include "cuda/kernels/device_stream.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"

namespace kvbench::cuda {

inline constexpr int kAttendQueries = 64;
inline constexpr int kAttendTokens = 64;

// Softmax sums of a query over a span of tokens, relative to its own maximum.
struct SpanSums {
  double max_logit;  // -infinity if the query sees no token of the span
  double sum;
  double squared_sum;
};

// A warp takes 16 queries. Their probabilities p never leave its registers: the lanes that get a
// tile of logits from Q K^T have it where P V wants it, if the tokens of a step are not four in a
// row but every second of eight. What is multiplied next comes to shared memory meanwhile.
template <int kSlice, bool kCapped>  // value dimensions per block; whether there is a soft-cap
struct AttendSpan {
  static constexpr int kThreads = kAttendQueries * 2;
  static constexpr int kDepth = 16;   // dimensions multiplied between two barriers
  static constexpr int kValues = 16;  // tokens multiplied between two barriers
  using Logits = WarpTiles<16, kAttendTokens>;
  using Outputs = WarpTiles<16, kSlice>;

  StreamView stream;
  double inverse_softcap = 0.0;    // if there is one
  const double* values = nullptr;  // [n, dv]
  Index dv = 0;
  Index span = 0;             // tokens per span, a multiple of kAttendTokens
  SpanSums* sums = nullptr;   // [spans, queries]
  double* outputs = nullptr;  // [spans, queries, dv], not yet divided by the sum

  // Rows are so long that half a warp finds its numbers in 16 different banks.
  union Part {
    struct {
      double queries[kAttendQueries][kDepth + 4];
      double keys[kAttendTokens][kDepth + 4];
    } products;
    double values[kValues][kSlice + 2];
  };
  struct Shared {
    Part parts[2];             // one is multiplied while the other is fetched
    int rows[kAttendQueries];  // -1 if there is no such query: it sees nothing
    // Of the four lanes that share a query. Registers have no room for them.
    double largest[kAttendQueries][4];    // logits of this tile
    SpanSums running[kAttendQueries][4];  // sums over a lane's own tokens, the maximum over all
  };
  // What a block works on: tokens [begin, end). There are fewer tokens than an int counts.
  struct Range {
    Index first_query_index;
    Index first_column;
    int begin;
    int end;
    int all_from;  // tokens [all_from, all_to) are visible to all of the block's queries
    int all_to;
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Range range = range_of(block);
    typename B::template Own<Logits> p(block);
    typename B::template Own<Outputs> own(block);
    block.threads([&](int t) {
      own[t] = Outputs{};
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        shared.running[query_of(t, i)][t % 4] = {-infinity(), 0.0, 0.0};
      }
    });
    block.each(kAttendQueries, [&](Index q) {
      const Index query_index = range.first_query_index + q;
      shared.rows[q] =
          query_index < stream.query_count ? static_cast<int>(stream.row_of(query_index)) : -1;
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
        block.template multiply<kDepth / 4>(
            p,
            [&](int t, int i, int s) {
              return part.products.queries[query_of(t, i)][4 * s + t % 4];
            },
            [&](int t, int j, int s) {
              return part.products.keys[8 * j + t % 32 / 4][4 * s + t % 4];
            });
      }
      exponentiate(block, shared, p, own, range, start);
      KVBENCH_UNROLL
      for (int first = 0; first < kAttendTokens; first += kValues) {
        const Part& part = shared.parts[at];
        at = 1 - at;
        if (first + kValues < kAttendTokens) {
          fetch_values(block, shared.parts[at], range, start + first + kValues);
        } else if (start + kAttendTokens < range.end) {
          fetch_products(block, shared.parts[at], range, start + kAttendTokens, 0);
        }
        block.template multiply<kValues / 4>(
            own, [&](int t, int i, int s) { return p[t].of[i][(first + 4 * s) / 8][s % 2]; },
            [&](int t, int j, int s) {
              return part.values[Logits::column(t, s / 2, s % 2)][8 * j + t % 32 / 4];
            });
      }
    }
    store(block, shared, own, range);
  }

 private:
  KVBENCH_DEVICE static int query_of(int t, int i) { return t / 32 * 16 + Logits::row(t, i); }

  template <Block B>
  KVBENCH_DEVICE Range range_of(const B& block) const {
    const Index blocks = blocks_of(kAttendQueries, stream.query_count);
    Range range;
    range.first_query_index = (blocks - 1 - block.x) * kAttendQueries;  // the longest rows first
    range.first_column = block.y * kSlice;
    const Index last_query_index =
        smaller(range.first_query_index + kAttendQueries, stream.query_count) - 1;
    const Index first_token = stream.first_visible(stream.row_of(range.first_query_index));
    const Index last_row = stream.row_of(last_query_index);
    range.begin =
        static_cast<int>(larger(block.z * span, first_token / kAttendTokens * kAttendTokens));
    range.end = static_cast<int>(smaller((block.z + 1) * span, last_row + 1));
    range.all_from = static_cast<int>(stream.first_visible(last_row));
    range.all_to = static_cast<int>(stream.row_of(range.first_query_index)) + 1;
    return range;
  }

  template <Block B>
  KVBENCH_DEVICE void fetch_products(B& block, Part& part, const Range& range, int start,
                                     Index k) const {
    const Index d = stream.d;
    block.template fetch<kDepth>(part.products.queries,
                                 stream.queries + range.first_query_index * d + k, d,
                                 stream.query_count - range.first_query_index, d - k);
    block.template fetch<kDepth>(part.products.keys, stream.keys + Index{start} * d + k, d,
                                 range.end - start, d - k);
  }
  template <Block B>
  KVBENCH_DEVICE void fetch_values(B& block, Part& part, const Range& range, int start) const {
    block.template fetch<kSlice>(part.values, values + Index{start} * dv + range.first_column, dv,
                                 range.end - start, dv - range.first_column);
  }

  // From products to p = exp(logit - maximum so far); what was gathered before is scaled to the new
  // maximum. Tokens that a query does not see have logits of -infinity, and canonical_exp is 0 both
  // there and for the NaN of -infinity - -infinity, if a query has not seen any.
  template <Block B>
  KVBENCH_DEVICE void exponentiate(B& block, Shared& shared, typename B::template Own<Logits>& p,
                                   typename B::template Own<Outputs>& own, const Range& range,
                                   int start) const {
    const bool all_visible = start >= range.all_from && start + kAttendTokens <= range.all_to;
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int q = query_of(t, i);
        if constexpr (kCapped) {
          each_of(p[t], i, [&](int, double& x) { x = capped(x); });
        } else {
          each_of(p[t], i, [&](int, double& x) { x *= stream.scale; });
        }
        if (!all_visible) {
          const int from = static_cast<int>(stream.first_visible(shared.rows[q])) - start;
          const int to = shared.rows[q] - start;
          each_of(p[t], i, [&](int column, double& x) {
            const int token = column + t % 4 * 2;
            x = token >= from && token <= to ? x : -infinity();
          });
        }
        double largest = -infinity();
        each_of(p[t], i, [&](int, double x) { largest = x > largest ? x : largest; });
        shared.largest[q][t % 4] = largest;
      }
    });
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int q = query_of(t, i);
        SpanSums run = shared.running[q][t % 4];
        const double before = run.max_logit;
        for (const double x : shared.largest[q]) {
          run.max_logit = x > run.max_logit ? x : run.max_logit;
        }
        if (before != run.max_logit) {
          const double rescale = canonical_exp(before - run.max_logit);
          run.sum *= rescale;
          run.squared_sum *= rescale * rescale;
          each_of(own[t], i, [&](int, double& x) { x *= rescale; });
        }
        each_of(p[t], i, [&](int, double& x) {
          x = canonical_exp(x - run.max_logit);
          run.sum += x;
          run.squared_sum = fused(x, x, run.squared_sum);
        });
        shared.running[q][t % 4] = run;
      }
    });
  }
  // each(column - 2 (t % 4), number) over what a thread has of one of its two queries.
  template <class Tiles, class Each>
  KVBENCH_DEVICE static void each_of(Tiles& tiles, int i, const Each& each) {
    constexpr int kAcross = sizeof(tiles.of[0]) / sizeof(tiles.of[0][0]);
    KVBENCH_UNROLL
    for (int j = 0; j < kAcross; ++j) {
      each(8 * j, tiles.of[i][j][0]);
      each(8 * j + 1, tiles.of[i][j][1]);
    }
  }
  // StreamView::logit of a stream with a soft-cap, without its divisions, which take the registers
  // that the sums need.
  KVBENCH_DEVICE double capped(double dot) const {
    const double x = stream.scale * dot;
    const double y = x * inverse_softcap;
    if (stream.softcap > kLargestPlainCap && fabs(y) < kSmallOverCap) return softcap_of_small(x, y);
    const double e = canonical_exp(-2.0 * fabs(y));
    return stream.softcap * copysign((1.0 - e) * inverse_in_1_2(1.0 + e), x);
  }
  // 1 / y of y in [1, 2] by Newton's iteration, from the line that is off by 1 / 17 at most: four
  // steps square that to 1e-19 or less.
  KVBENCH_DEVICE static double inverse_in_1_2(double y) {
    double inverse = fused(-8.0 / 17.0, y, 24.0 / 17.0);
    for (int i = 0; i < 4; ++i) {
      inverse = fused(inverse, fused(-y, inverse, 1.0), inverse);
    }
    return inverse;
  }

  template <Block B>
  KVBENCH_DEVICE void store(B& block, Shared& shared, typename B::template Own<Outputs>& own,
                            const Range& range) const {
    block.threads([&](int t) {
      KVBENCH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Index query_index = range.first_query_index + query_of(t, i);
        double* out = outputs + (block.z * stream.query_count + query_index) * dv;
        const Index first = range.first_column + t % 4 * 2;
        each_of(own[t], i, [&](int column, double x) {
          if (query_index < stream.query_count && first + column < dv) out[first + column] = x;
        });
      }
    });
    if (block.y != 0) return;
    block.each(smaller(kAttendQueries, stream.query_count - range.first_query_index), [&](Index q) {
      const SpanSums* lanes = shared.running[q];
      SpanSums total = lanes[0];
      for (int i = 1; i < 4; ++i) {
        total.sum += lanes[i].sum;
        total.squared_sum += lanes[i].squared_sum;
      }
      sums[block.z * stream.query_count + range.first_query_index + q] = total;
    });
  }
};

// Joins the spans of one query per block.
struct JoinSpans {
  static constexpr int kThreads = 128;

  Index query_count = 0;
  Index spans = 0;
  Index dv = 0;
  const SpanSums* sums = nullptr;        // [spans, queries]
  const double* span_outputs = nullptr;  // [spans, queries, dv]
  SpanSums* joined = nullptr;            // [queries]
  double* outputs = nullptr;             // [queries, dv]

  struct Shared {
    SpanSums total;
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index query_index = block.x;
    block.each(1, [&](Index) {
      SpanSums total{-infinity(), 0.0, 0.0};
      for (Index s = 0; s < spans; ++s) {
        const double m = sums[s * query_count + query_index].max_logit;
        total.max_logit = m > total.max_logit ? m : total.max_logit;
      }
      for (Index s = 0; s < spans; ++s) {
        const SpanSums& part = sums[s * query_count + query_index];
        const double factor = weight(part, total);
        total.sum = fused(part.sum, factor, total.sum);
        total.squared_sum = fused(part.squared_sum, factor * factor, total.squared_sum);
      }
      shared.total = total;
      joined[query_index] = total;
    });
    block.each(dv, [&](Index k) {
      double output = 0.0;
      for (Index s = 0; s < spans; ++s) {
        output = fused(span_outputs[(s * query_count + query_index) * dv + k],
                       weight(sums[s * query_count + query_index], shared.total), output);
      }
      outputs[query_index * dv + k] = output / shared.total.sum;
    });
  }

 private:
  KVBENCH_DEVICE static double weight(const SpanSums& part, const SpanSums& total) {
    return part.max_logit == -infinity() ? 0.0 : canonical_exp(part.max_logit - total.max_logit);
  }
};

// Some of a call's rows, and where its queries begin among all of the call.
struct AttentionBatch {
  std::vector<Index> rows;
  Index first_query_index = 0;
  Index span = 0;  // tokens that a block of threads takes, the same for the whole call
};

// `outputs()` gives the memory of the call's outputs, and is called when the device is at work.
template <Machine M, class Outputs>
void attend(M& machine, const Stream& stream, const AttentionBatch& all, const Outputs& outputs_of,
            ExactRows& out) {
  const StreamShape& shape = stream.shape;
  const Index count = static_cast<Index>(all.rows.size());
  const Index heads_per_kv = shape.heads_per_kv;
  const Index tokens = all.rows.back() + 1;
  const Index spans = blocks_of(all.span, tokens);
  using Rows = DeviceStream<M>;
  const Index per_place = bytes_of_doubles((spans + 1) * (shape.dv + 3));
  DeviceMatrix keys(machine, first_rows(stream.keys, tokens));
  DeviceMatrix values(machine, first_rows(stream.values, tokens));
  const auto room = machine.reserve({.what = "exact attention",
                                     .fixed_bytes = keys.bytes() + values.bytes(),
                                     .row_bytes = Rows::row_bytes(shape) + heads_per_kv * per_place,
                                     .rows = count});
  const Index at_once = room.rows() * heads_per_kv;
  Rows device(machine, stream, keys.bring(), room.rows());
  const double* device_values = values.bring();
  auto span_sums = machine.template allocate<SpanSums>(spans * at_once);
  auto span_outputs = machine.template allocate<double>(spans * at_once * shape.dv);
  auto sums = machine.template allocate<SpanSums>(at_once);
  auto outputs = machine.template allocate<double>(at_once * shape.dv);

  std::vector<SpanSums> joined(static_cast<std::size_t>(at_once));
  for (Index first = 0; first < count; first += room.rows()) {
    const Index batch = smaller(room.rows(), count - first);
    const StreamView view = device.at(all.rows.data() + first, batch);
    const Index n = view.query_count;
    const auto launch = [&]<int kSlice, bool kCapped>(AttendSpan<kSlice, kCapped> body) {
      body.stream = view;
      if (kCapped) body.inverse_softcap = 1.0 / view.softcap;
      body.values = device_values;
      body.dv = shape.dv;
      body.span = all.span;
      body.sums = span_sums.data();
      body.outputs = span_outputs.data();
      machine.launch(body, {.x = blocks_of(kAttendQueries, n),
                            .y = larger(1, blocks_of(kSlice, shape.dv)),
                            .z = spans});
    };
    if (view.softcap > 0.0) {
      if (shape.dv <= 64) {
        launch(AttendSpan<64, true>());
      } else {
        launch(AttendSpan<128, true>());
      }
    } else if (shape.dv <= 64) {
      launch(AttendSpan<64, false>());
    } else {
      launch(AttendSpan<128, false>());
    }
    JoinSpans join;
    join.query_count = n;
    join.spans = spans;
    join.dv = shape.dv;
    join.sums = span_sums.data();
    join.span_outputs = span_outputs.data();
    join.joined = sums.data();
    join.outputs = outputs.data();
    machine.launch(join, {.x = n});
    const Index at = all.first_query_index + first * heads_per_kv;
    machine.download(outputs_of() + at * shape.dv, outputs.data(), n * shape.dv);
    machine.download(joined.data(), sums.data(), n);
    for (Index i = 0; i < n; ++i) {
      const auto query_index = static_cast<std::size_t>(at + i);
      const SpanSums& total = joined[static_cast<std::size_t>(i)];
      out.max_logit[query_index] = total.max_logit;
      out.normalizer[query_index] = total.sum;
      out.squared_sum[query_index] = total.squared_sum;
    }
  }
}

// How the work of a call is split. Spans decide bits, batches and workers do not.
struct AttentionSplit {
  Index many_queries = 32768;  // enough to fill the device with long spans
  Index span = 1024;           // tokens, of fewer queries; multiples of kAttendTokens
  Index many_span = 4096;      // of many: short enough for the last blocks to end together
  Index batch_queries = 1024;  // of many
  Index workers = 6;           // threads that take batches
};

// `make()` gives a machine. If keys and values are on the device already, many queries are taken in
// batches by a few threads, so that queries and outputs travel while others are computed.
template <MachineFactory Make>
ExactRows exact_attention(const Make& make, const Stream& stream, std::vector<Index> rows,
                          const AttentionSplit& split = {}) {
  const StreamShape& shape = stream.shape;
  ExactRows out;
  out.rows = std::move(rows);
  const Index count = static_cast<Index>(out.rows.size());
  const Index query_count = count * shape.heads_per_kv;
  out.max_logit.resize(static_cast<std::size_t>(query_count));
  out.normalizer.resize(static_cast<std::size_t>(query_count));
  out.squared_sum.resize(static_cast<std::size_t>(query_count));
  if (count == 0) return out;

  const Index tokens = out.rows.back() + 1;
  const bool is_held = [&] {
    auto machine = make();
    return machine.copies().find(first_rows(stream.keys, tokens)) != nullptr &&
           machine.copies().find(first_rows(stream.values, tokens)) != nullptr;
  }();
  const bool many = query_count >= split.many_queries;
  const Index span = many ? split.many_span : split.span;
  const Index batch_rows =
      many && is_held ? larger(1, split.batch_queries / shape.heads_per_kv) : count;
  std::once_flag made;
  const auto outputs = [&] {
    std::call_once(made,
                   [&] { out.outputs.resize(static_cast<std::size_t>(query_count * shape.dv)); });
    return out.outputs.data();
  };
  const Index batches = blocks_of(batch_rows, count);
  const Index workers = smaller(split.workers, batches);
  const auto work = [&](Index worker) {
    for (Index b = worker; b < batches; b += workers) {
      const Index first = b * batch_rows;
      AttentionBatch batch;
      batch.rows.assign(out.rows.begin() + first,
                        out.rows.begin() + smaller(first + batch_rows, count));
      batch.first_query_index = first * shape.heads_per_kv;
      batch.span = span;
      auto machine = make();
      attend(machine, stream, batch, outputs, out);
    }
  };
  if (workers == 1) {
    work(0);
  } else {
    parallel_for(workers, work);
  }
  return out;
}

}  // namespace kvbench::cuda
