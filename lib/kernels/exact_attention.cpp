#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cpu_kernels.hpp"
#include "kernels/interleaved.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/aligned.hpp"
#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "numerics/unrolled.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

// Rows x columns of a product whose sums stay in registers.
constexpr int kRows = 6;
#if defined(__AVX512F__)
constexpr int kPanels = 2;
#else
constexpr int kPanels = 1;
#endif
constexpr Index kWidth = kPanels * Lanes::kCount;
constexpr Index kKeyTile = 64;  // tokens that are packed at a time
constexpr Index kDepth = 128;   // dimensions of a key panel at a time: 16 KiB
constexpr Index kMinQueries = 11 * kRows;
constexpr Index kCacheBytes = 640 << 10;  // bytes of a block's queries, logits and outputs
constexpr double kNever = -std::numeric_limits<double>::infinity();

Index padded(Index count, Index to) { return (count + to - 1) / to * to; }

// (Row, query head) pairs per task: packing a tile is worth many of them, they have to stay in
// cache, and no thread may be left without work at the end.
Index queries_per_block(const StreamShape& shape, Index query_count) {
  const Index bytes = (shape.d + kKeyTile + padded(shape.dv, kWidth)) * Index{sizeof(double)};
  const Index most = std::max(kMinQueries, kCacheBytes / bytes);
  const Index fair = query_count / (4 * thread_count());
  return std::clamp(fair, kMinQueries, most) / kRows * kRows;
}

// c[r][0..kWidth) = (adds: +=) sum over k < depth of a[r][k] b[k][0..kWidth), r < kRows. Inlined,
// GCC 12 keeps the sums in memory.
template <bool Adds>
[[gnu::noinline]] void product(const double* a, Index a_stride, const double* b, Index depth,
                               double* c, Index c_stride) {
  Lanes sums[kRows * kPanels];
  unrolled<kRows * kPanels>([&](auto i) {
    const double* at = c + i / kPanels * c_stride + i % kPanels * Lanes::kCount;
    sums[i] = Adds ? Lanes::load(at) : Lanes::all(0.0);
  });
  for (Index k = 0; k < depth; ++k) {
    Lanes columns[kPanels];
    unrolled<kPanels>(
        [&](auto p) { columns[p] = Lanes::load(b + k * kWidth + p * Lanes::kCount); });
    unrolled<kRows * kPanels>([&](auto i) {
      sums[i] =
          Lanes::fma(Lanes::all(a[i / kPanels * a_stride + k]), columns[i % kPanels], sums[i]);
    });
  }
  unrolled<kRows * kPanels>(
      [&](auto i) { sums[i].store(c + i / kPanels * c_stride + i % kPanels * Lanes::kCount); });
}

// Running softmax of one query.
struct Running {
  double max_logit = kNever;
  double sum = 0.0;
  double squared_sum = 0.0;
};

// Turns the visible part [lo, hi) of a column of logits into exp(x - m), zeros elsewhere. Returns
// the factor by which everything gathered before has to be multiplied.
// `bias(x)` adds to the visible logits.
template <class Bias>
double absorb(const StreamShape& shape, const Bias& bias, double* x, Index lo, Index hi, Index size,
              Running& run) {
  Lanes largest = Lanes::all(kNever);
  std::fill(x, x + lo, kNever);
  std::fill(x + hi, x + size, kNever);
  if (shape.softcap > 0.0) {
    for (Index j = lo / Lanes::kCount * Lanes::kCount; j < hi; j += Lanes::kCount) {
      canonical_softcap(Lanes::load(x + j), shape.softcap).store(x + j);
    }
    std::fill(x, x + lo, kNever);
    std::fill(x + hi, x + size, kNever);
  }
  if (shape.alibi) bias(x);
  for (Index j = 0; j < size; j += Lanes::kCount) {
    largest = Lanes::max(largest, Lanes::load(x + j));
  }
  const double m = std::max(run.max_logit, largest.largest());
  const double rescale = run.max_logit == m        ? 1.0
                         : run.max_logit == kNever ? 0.0
                                                   : canonical_exp(run.max_logit - m);
  run.max_logit = m;
  Lanes sum = Lanes::all(0.0);
  Lanes squared = Lanes::all(0.0);
  for (Index j = 0; j < size; j += Lanes::kCount) {
    const Lanes e = canonical_exp(Lanes::load(x + j) - Lanes::all(m));
    e.store(x + j);
    sum = sum + e;
    squared = Lanes::fma(e, e, squared);
  }
  run.sum = run.sum * rescale + sum.sum();
  run.squared_sum = run.squared_sum * rescale * rescale + squared.sum();
  return rescale;
}

// Consecutive query heads and rows against one tile of tokens after another.
class Block {
 public:
  Block(const Stream& stream, Index first_query_index, Index last_query_index, ExactRows& out)
      : stream_(stream),
        shape_(stream.shape),
        first_query_index_(first_query_index),
        count_(last_query_index - first_query_index),
        rows_(padded(count_, kRows)),
        width_(padded(shape_.dv, kWidth)),
        out_(out),
        queries_(rows_ * shape_.d, 0.0),
        keys_(kKeyTile * shape_.d),
        values_(kKeyTile * width_, 0.0),
        logits_(rows_ * kKeyTile, 0.0),
        outputs_(rows_ * width_, 0.0),
        running_(count_) {
    for (Index q = 0; q < count_; ++q) {
      const double* query = stream.query(head(q), row(q));
      for (Index k = 0; k < shape_.d; ++k) {
        queries_[q * shape_.d + k] = shape_.scale * query[k];
      }
      if (shape_.sinks) running_[q] = {stream.sink(head(q)), 1.0, 0.0};
    }
  }

  void attend() {
    const Index end = shape_.visible_end(row(count_ - 1));
    for (Index start = shape_.first_visible(row(0)) / kKeyTile * kKeyTile; start < end;
         start += kKeyTile) {
      attend_tile(start, std::min(kKeyTile, end - start));
    }
    for (Index q = 0; q < count_; ++q) {
      const std::size_t query_index = first_query_index_ + q;
      const Running& run = running_[q];
      const double* from = outputs_.data() + q * width_;
      double* to = out_.outputs.data() + (first_query_index_ + q) * shape_.dv;
      for (Index k = 0; k < shape_.dv; ++k) to[k] = from[k] / run.sum;
      out_.max_logit[query_index] = run.max_logit;
      out_.normalizer[query_index] = run.sum;
      out_.squared_sum[query_index] = run.squared_sum;
    }
  }

 private:
  Index row(Index q) const { return out_.rows[(first_query_index_ + q) / shape_.heads_per_kv]; }

  int head(Index q) const {
    return static_cast<int>((first_query_index_ + q) % shape_.heads_per_kv);
  }

  // Panels of kWidth tokens, dimension-major; panels of kWidth value columns, token by token.
  void pack(Index start, Index tokens) {
    for (Index t = 0; t < tokens; t += kWidth)
      pack_keys(start + t, std::min(kWidth, tokens - t), t);
    for (Index t = 0; t < tokens; ++t) {
      const double* value = stream_.values.row(start + t);
      Index k = 0;
      for (; k + kWidth <= shape_.dv; k += kWidth) {
        double* panel = values_.data() + k * kKeyTile + t * kWidth;
        unrolled<kPanels>([&](auto p) {
          Lanes::load(value + k + p * Lanes::kCount).store(panel + p * Lanes::kCount);
        });
      }
      if (k == shape_.dv) continue;
      std::copy(value + k, value + shape_.dv, values_.data() + k * kKeyTile + t * kWidth);
    }
  }

  // Tokens beyond the last are copies of the first: padding, never read.
  void pack_keys(Index first, Index tokens, Index t) {
    const double* from[kWidth];
    for (Index r = 0; r < kWidth; ++r) from[r] = stream_.keys.row(first + (r < tokens ? r : 0));
    double* to = keys_.data() + t * shape_.d;
    for (Index r = 0; r < kWidth; r += Lanes::kCount) {
      interleave(from + r, shape_.d, to + r, kWidth);
    }
  }

  // Queries that see a part of a tile, up to whole steps of the product.
  struct Queries {
    Index first;
    Index last;
  };

  Queries queries_of(Index start, Index tokens) const {  // rows ascend
    Queries see{0, count_};
    while (see.first < count_ && shape_.visible_end(row(see.first)) <= start) ++see.first;
    while (see.last > see.first && shape_.first_visible(row(see.last - 1)) >= start + tokens) {
      --see.last;
    }
    return {see.first / kRows * kRows, padded(see.last, kRows)};
  }

  void attend_tile(Index start, Index tokens) {
    const Queries see = queries_of(start, tokens);
    if (see.first >= see.last) return;
    pack(start, tokens);
    for (Index t = 0; t < tokens; t += kWidth) multiply_queries(see, t);
    for (Index q = see.first; q < std::min(see.last, count_); ++q) exponentiate(q, start, tokens);
    // A panel of values stays in the first cache for all queries.
    for (Index k = 0; k < width_; k += kWidth) {
      const double* values = values_.data() + k * kKeyTile;
      for (Index q = see.first; q < see.last; q += kRows) {
        product<true>(logits_.data() + q * kKeyTile, kKeyTile, values, tokens,
                      outputs_.data() + q * width_ + k, width_);
      }
    }
  }

  // Logits of queries with a panel of tokens, whose dimensions come in parts that stay in the first
  // cache for all queries.
  void multiply_queries(Queries see, Index t) {
    const Index d = shape_.d;
    for (Index k = 0; k < d; k += kDepth) {
      const double* keys = keys_.data() + t * d + k * kWidth;
      const Index depth = std::min(kDepth, d - k);
      for (Index q = see.first; q < see.last; q += kRows) {
        const double* queries = queries_.data() + q * d + k;
        double* logits = logits_.data() + q * kKeyTile + t;
        if (k == 0) {
          product<false>(queries, d, keys, depth, logits, kKeyTile);
        } else {
          product<true>(queries, d, keys, depth, logits, kKeyTile);
        }
      }
    }
  }

  void exponentiate(Index q, Index start, Index tokens) {
    const Index i = row(q);
    const Index lo = std::clamp<Index>(shape_.first_visible(i) - start, 0, tokens);
    const Index hi = std::clamp<Index>(shape_.visible_end(i) - start, 0, tokens);
    const Index size = padded(tokens, Lanes::kCount);
    double* x = logits_.data() + q * kKeyTile;
    if (lo >= hi) {
      std::fill(x, x + size, 0.0);
      return;
    }
    const auto bias = [&](double* logits) {
      add_alibi(stream_, head(q), i, start + lo, start + hi, logits + lo);
    };
    const double rescale = absorb(shape_, bias, x, lo, hi, size, running_[q]);
    if (rescale == 1.0) return;
    double* output = outputs_.data() + q * width_;
    for (Index k = 0; k < width_; ++k) output[k] *= rescale;
  }

  const Stream& stream_;
  const StreamShape& shape_;
  Index first_query_index_;
  Index count_;
  Index rows_;   // count_ padded: those beyond are zero queries
  Index width_;  // width of outputs, padded
  ExactRows& out_;
  AlignedDoubles queries_;  // [rows, d], scaled
  AlignedDoubles keys_;
  AlignedDoubles values_;
  AlignedDoubles logits_;   // [rows, kKeyTile], then exponentials
  AlignedDoubles outputs_;  // [rows, width]
  std::vector<Running> running_;
};

}  // namespace

ExactRows CpuKernels::exact_attention(const Stream& stream, std::vector<Index> rows) const {
  ExactRows out;
  out.rows = std::move(rows);
  const Index query_count = std::ssize(out.rows) * stream.shape.heads_per_kv;
  out.outputs.resize(query_count * stream.shape.dv);
  out.max_logit.resize(query_count);
  out.normalizer.resize(query_count);
  out.squared_sum.resize(query_count);
  const Index queries = queries_per_block(stream.shape, query_count);
  const Index blocks = (query_count + queries - 1) / queries;
  parallel_for(blocks, [&](Index b) {
    const Index first = (blocks - 1 - b) * queries;  // the longest rows first
    Block(stream, first, std::min(first + queries, query_count), out).attend();
  });
  return out;
}

}  // namespace kvbench
