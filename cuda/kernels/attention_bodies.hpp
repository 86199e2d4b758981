// The bodies of cuda/kernels/exact_attention.hpp: blocked online softmax in double, products on
// tensor cores if there are any. A block of threads takes some queries, a slice of the value's
// dimensions, and a span of tokens; spans are joined in order by a second kernel. Logits are not
// canonical: how four products are added is the device's choice. All else has a fixed order, so
// that on one kind of device the bits depend on the call's shape and number of queries, not on how
// a call is cut.
#pragma once

#include "cuda/kernels/device_stream.hpp"
#include "cuda/machine.hpp"

namespace kvbench::cuda {

inline constexpr int kAttendTokens = 64;

// Softmax sums of a query over a span of tokens, relative to its own maximum.
struct SpanSums {
  double max_logit;  // -infinity if the query sees no token of the span
  double sum;
  double squared_sum;
};

// How a block of threads works. For vectors of at most kDimensions, on devices with enough shared
// memory (79 KiB for 64 dimensions, 214 for 128): the block's queries stay in it.
template <int kDimensions>
struct WideAttend {
  static constexpr int kQueries = kDimensions;
  static constexpr int kStay = kDimensions;   // dimensions of queries
  static constexpr int kSlice = kDimensions;  // dimensions of values
  static constexpr int kDepth = 32;           // dimensions multiplied between two barriers
  static constexpr int kValues = 32;          // tokens multiplied between two barriers
};
// Elsewhere they come with the keys, kDepth dimensions at a time.
template <int kDimensions>
struct NarrowAttend {
  static constexpr int kQueries = 64;
  static constexpr int kStay = 0;
  static constexpr int kSlice = kDimensions;
  static constexpr int kDepth = 16;
  static constexpr int kValues = 16;
};

// A warp takes 16 queries. Their probabilities p never leave its registers: the lanes that get a
// tile of logits from Q K^T have it where P V wants it, if the tokens of a step are not four in a
// row but every second of eight. The next factors come to shared memory meanwhile.
// Tiling: one of the above; kCapped: whether there is a soft-cap; kPairs: d and dv are even, so
// that numbers come in pairs.
template <class Tiling, bool kCapped, bool kPairs>
struct AttendSpan {
  static constexpr int kQueries = Tiling::kQueries;
  static constexpr int kSlice = Tiling::kSlice;
  static constexpr int kDepth = Tiling::kDepth;
  static constexpr int kValues = Tiling::kValues;
  static constexpr bool kStays = Tiling::kStay > 0;
  static constexpr int kThreads = kQueries * 2;
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
      double keys[kAttendTokens][kDepth + 4];
      double queries[kStays ? 1 : kQueries][kDepth + 4];
    } products;
    double values[kValues][kSlice + 2];
  };
  struct Shared {
    double queries[kStays ? kQueries : 1][Tiling::kStay + 4];  // those that stay
    Part parts[2];       // one is multiplied while the other is fetched
    int rows[kQueries];  // -1 if there is no such query: it sees nothing
    // Values of the four lanes that share a query. Registers have no room for them.
    double largest[kQueries][4];    // logits of this tile
    SpanSums running[kQueries][4];  // sums over a lane's own tokens, the maximum over all
  };
  // The tokens of a block: [begin, end). There are fewer tokens than an int counts.
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
    block.each(kQueries, [&](Index q) {
      const Index query_index = range.first_query_index + q;
      shared.rows[q] =
          query_index < stream.query_count ? static_cast<int>(stream.row_of(query_index)) : -1;
    });

    if constexpr (kStays) {
      fetch<Tiling::kStay>(block, shared.queries, queries_from(range, 0), stream.d,
                           queries_of(range), stream.d);
    }
    int at = 0;
    fetch_products(block, shared.parts[at], range, range.begin, 0);
    block.fetched();
    const int dimensions = static_cast<int>(stream.d);
    for (int start = range.begin; start < range.end; start += kAttendTokens) {
      block.threads([&](int t) { p[t] = Logits{}; });
      const auto multiply_keys = [&](int k, const auto& fetches) {
        const Part& part = shared.parts[at];
        at = 1 - at;
        block.template multiply<kDepth / 4>(
            p,
            [&](int t, int i, int s) {
              if constexpr (kStays) {
                return shared.queries[query_of(t, i)][k + 4 * s + t % 4];
              } else {
                return part.products.queries[query_of(t, i)][4 * s + t % 4];
              }
            },
            [&](int t, int j, int s) {
              return part.products.keys[8 * j + t % 32 / 4][4 * s + t % 4];
            },
            fetches);
      };
      int k = 0;
      for (; k + kDepth < dimensions; k += kDepth) {
        multiply_keys(k,
                      [&] { fetch_products(block, shared.parts[at], range, start, k + kDepth); });
      }
      multiply_keys(k, [&] { fetch_values(block, shared.parts[at], range, start); });
      exponentiate(block, shared, p, own, range, start);
      KVBENCH_UNROLL
      for (int first = 0; first < kAttendTokens; first += kValues) {
        const Part& part = shared.parts[at];
        at = 1 - at;
        block.template multiply<kValues / 4>(
            own, [&](int t, int i, int s) { return p[t].of[i][(first + 4 * s) / 8][s % 2]; },
            [&](int t, int j, int s) {
              return part.values[Logits::column(t, s / 2, s % 2)][8 * j + t % 32 / 4];
            },
            [&] {
              if (first + kValues < kAttendTokens) {
                fetch_values(block, shared.parts[at], range, start + first + kValues);
              } else {
                fetch_products(block, shared.parts[at], range, start + kAttendTokens, 0);
              }
            });
      }
    }
    store(block, shared, own, range);
  }

 private:
  KVBENCH_DEVICE static int query_of(int t, int i) { return t / 32 * 16 + Logits::row(t, i); }

  template <Block B>
  KVBENCH_DEVICE Range range_of(const B& block) const {
    const Index blocks = blocks_of(kQueries, stream.query_count);
    Range range;
    range.first_query_index = (blocks - 1 - block.x) * kQueries;  // the longest rows first
    range.first_column = block.y * kSlice;
    const Index last_query_index =
        smaller(range.first_query_index + kQueries, stream.query_count) - 1;
    const Index first_token = stream.first_visible(stream.row_of(range.first_query_index));
    const Index last_row = stream.row_of(last_query_index);
    range.begin =
        static_cast<int>(larger(block.z * span, first_token / kAttendTokens * kAttendTokens));
    range.end = static_cast<int>(smaller((block.z + 1) * span, last_row + 1));
    range.all_from = static_cast<int>(stream.first_visible(last_row));
    range.all_to = static_cast<int>(stream.row_of(range.first_query_index)) + 1;
    return range;
  }

  KVBENCH_DEVICE const double* queries_from(const Range& range, int k) const {
    return stream.queries + range.first_query_index * stream.d + k;
  }
  KVBENCH_DEVICE int queries_of(const Range& range) const {
    return static_cast<int>(smaller(stream.query_count - range.first_query_index, kQueries));
  }
  // Block::fetch without a branch, so that its instructions run between those of a product. There
  // are fewer rows and columns than an int counts; what lies beyond the last one is zero.
  template <int kColumns, Block B, class Matrix>
  KVBENCH_DEVICE static void fetch(B& block, Matrix& to, const double* from, Index stride, int rows,
                                   Index columns) {
    if constexpr (kPairs) {
      block.template fetch_pairs<kColumns>(to, from, static_cast<int>(stride), rows,
                                           static_cast<int>(columns));
    } else {
      block.template fetch<kColumns>(to, from, stride, rows, columns);
    }
  }
  template <Block B>
  KVBENCH_DEVICE void fetch_products(B& block, Part& part, const Range& range, int start,
                                     int k) const {
    const Index d = stream.d;
    if constexpr (!kStays) {
      fetch<kDepth>(block, part.products.queries, queries_from(range, k), d, queries_of(range),
                    d - k);
    }
    fetch<kDepth>(block, part.products.keys, stream.keys + Index{start} * d + k, d,
                  range.end - start, d - k);
  }
  template <Block B>
  KVBENCH_DEVICE void fetch_values(B& block, Part& part, const Range& range, int token) const {
    fetch<kSlice>(block, part.values, values + Index{token} * dv + range.first_column, dv,
                  range.end - token, dv - range.first_column);
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
    KVBENCH_UNROLL
    for (int j = 0; j < Tiles::kAcross; ++j) {
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
    block.each(smaller(kQueries, stream.query_count - range.first_query_index), [&](Index q) {
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

}  // namespace kvbench::cuda
