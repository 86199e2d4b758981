// The bodies of cuda/kernels/score_sums.hpp. Every sum has the order of
// lib/kernels/score_stripe.hpp: a row's normaliser is made of eight parts, a token's sum gathers
// the rows of a stripe in ascending order, then joins those before it.
#pragma once

#include "cuda/kernels/block_largest.hpp"
#include "cuda/kernels/device_stream.hpp"
#include "cuda/machine.hpp"
#include "kernels/kernels.hpp"
#include "numerics/logit_noise.hpp"

namespace kvbench::cuda {

// ScoreRule as data that travels to a device.
struct ScoreView {
  LogitNoise noise;
  bool weighs_tokens = false;
  double temperature = 1.0;
  double decay = 1.0;
  double gain = 1.0;

  KVBENCH_DEVICE double draw(Index query_head, Index row, Index token) const {
    return noise.draw(query_head, row, token);
  }
  // Whether apply() changes nothing.
  KVBENCH_DEVICE bool is_plain() const { return temperature == 1.0 && !adds_noise(); }
  KVBENCH_DEVICE bool adds_noise() const { return !noise.is_none() && !weighs_tokens; }
  // (x + noise) / temperature, without noise that weighs tokens.
  KVBENCH_DEVICE double apply(double logit, Index query_head, Index row, Index token) const {
    if (adds_noise()) logit += draw(query_head, row, token);
    return temperature == 1.0 ? logit : logit / temperature;
  }
};

// w[g][j] = exp(noise / temperature), 1 if noise does not weigh tokens.
struct NoiseFactors {
  static constexpr int kThreads = 256;

  ScoreView rule;
  Index tokens = 0;
  double* weights = nullptr;  // [G, tokens]

  struct Shared {};

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared&) const {
    const Index g = block.y;
    const Index first = block.x * kThreads;
    block.each(smaller(kThreads, tokens - first), [&](Index i) {
      const Index j = first + i;
      weights[g * tokens + j] =
          rule.weighs_tokens ? canonical_exp(rule.draw(g, 0, j) / rule.temperature) : 1.0;
    });
  }
};

// Columns that one block of GatherScores reads. It reads all of them for a row that sees one.
inline constexpr Index kGatherColumns = 64;

// One block per query: logits become e = exp(y - max y), and 0 where the query does not see a
// token, as far as GatherScores reads.
struct ScoreExponentials {
  static constexpr int kThreads = 256;

  StreamView stream;
  ScoreView rule;
  Index first_token = 0;  // column 0
  Index columns = 0;
  double* e = nullptr;  // [queries, columns]

  struct Shared {
    double largest[kThreads];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index query_index = block.x;
    const Index row = stream.row_of(query_index);
    const Index lo = stream.first_visible(row) - first_token;
    const Index hi = row + 1 - first_token;
    const Index end = smaller(columns, blocks_of(kGatherColumns, hi) * kGatherColumns);
    double* x = e + query_index * columns;
    const bool is_plain = rule.is_plain();
    block.threads([&](int t) {
      double largest = -infinity();
      for (Index j = lo + t; j < hi; j += kThreads) {
        double y = x[j];
        if (!is_plain) {
          y = rule.apply(y, query_index % stream.heads_per_kv, row, first_token + j);
          x[j] = y;
        }
        largest = largest > y ? largest : y;
      }
      shared.largest[t] = largest;
    });
    gather_largest(block, shared.largest);
    block.threads([&](int t) {
      const double m = shared.largest[0];
      for (Index j = t; j < end; j += kThreads) {
        x[j] = j >= lo && j < hi ? canonical_exp(x[j] - m) : 0.0;
      }
    });
  }
};

// A stripe of rows within [first, last): its own part, and what its rows decay by.
struct StripeOf {
  Index first;
  Index last;

  KVBENCH_DEVICE StripeOf(Index row, Index from, Index to)
      : first(larger(row / kScoreStripeRows * kScoreStripeRows, from)),
        last(smaller(row / kScoreStripeRows * kScoreStripeRows + kScoreStripeRows, to)) {}
};

KVBENCH_DEVICE inline double power_of(double decay, Index exponent) {
  double power = 1.0;
  for (Index i = 0; i < exponent; ++i) power *= decay;
  return power;
}

// The factor of a row's exponentials: gain decay^(rows of the stripe after it) / sum e w.
struct ScoreFactors {
  static constexpr int kQueries = 32;
  static constexpr int kLanes = 8;
  static constexpr int kThreads = kQueries * kLanes;

  StreamView stream;
  ScoreView rule;
  Index first_token = 0;
  Index columns = 0;
  Index first_row = 0;  // rows of the call: [first_row, last_row)
  Index last_row = 0;
  Index tokens = 0;
  const double* e = nullptr;        // [queries, columns]
  const double* weights = nullptr;  // [G, tokens]
  double* factors = nullptr;        // [queries]

  struct Shared {
    double partial[kQueries][kLanes];
  };

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared& shared) const {
    const Index first_query_index = block.x * kQueries;
    const Index count = smaller(kQueries, stream.query_count - first_query_index);
    block.each(count * kLanes, [&](Index i) {
      const Index query_index = first_query_index + i / kLanes;
      const double* x = e + query_index * columns;
      const double* w = weights + query_index % stream.heads_per_kv * tokens + first_token;
      const Index row = stream.row_of(query_index);
      const Index from = stream.first_visible(row);
      double sum = 0.0;
      for (Index c = from - first_token + (i % kLanes - from % kLanes + kLanes) % kLanes;
           c <= row - first_token; c += kLanes) {
        sum = fused(x[c], w[c], sum);
      }
      shared.partial[i / kLanes][i % kLanes] = sum;
    });
    block.each(count, [&](Index q) {
      const Index row = stream.row_of(first_query_index + q);
      const Index after = StripeOf(row, first_row, last_row).last - 1 - row;
      factors[first_query_index + q] =
          rule.gain * power_of(rule.decay, after) / lanes_sum(shared.partial[q]);
    });
  }
};

// One thread per token and query head: the rows of a batch in ascending order.
struct GatherScores {
  static constexpr int kThreads = kGatherColumns;
  static constexpr int kAhead = 16;  // rows that a thread fetches at a time

  StreamView stream;
  ScoreView rule;
  Index first_token = 0;
  Index columns = 0;
  Index first_row = 0;
  Index last_row = 0;
  Index tokens = 0;
  const double* e = nullptr;        // [queries, columns]
  const double* factors = nullptr;  // [queries]
  double* stripe = nullptr;         // [G, tokens] of the current stripe
  double* sums = nullptr;           // [G, tokens]

  struct Shared {};

  template <Block B>
  KVBENCH_DEVICE void operator()(B& block, Shared&) const {
    const Index g = block.y;
    const Index first = block.x * kThreads;
    // Rows before the first of these tokens add nothing to any of them. Rows follow one another.
    const Index unseeing = larger(0, first_token + first - stream.rows[0]);
    block.each(smaller(kThreads, columns - first), [&](Index i) {
      const Index column = first + i;
      const Index token = first_token + column;
      double p = stripe[g * tokens + token];
      double f = sums[g * tokens + token];
      const Index step = stream.heads_per_kv;
      const Index row_count = stream.query_count / step;
      const Index first_here = stream.rows[0];
      StripeOf rows(first_here + unseeing, first_row, last_row);
      for (Index r = unseeing; r < row_count; r += kAhead) {
        double exponential[kAhead];  // all asked for before the first is waited for
        double factor[kAhead];
        KVBENCH_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          const Index at = (r + a) * step + g;
          exponential[a] = r + a < row_count ? e[at * columns + column] : 0.0;
          factor[a] = r + a < row_count ? factors[at] : 0.0;
        }
        KVBENCH_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          if (r + a >= row_count) break;
          p = fused(exponential[a], factor[a], p);
          const Index row = first_here + r + a;
          if (row != rows.last - 1) continue;
          if (token >= stream.first_visible(rows.first)) {
            f = fused(power_of(rule.decay, rows.last - rows.first), f, p);
          }
          p = 0.0;
          rows = StripeOf(row + 1, first_row, last_row);
        }
      }
      stripe[g * tokens + token] = p;
      sums[g * tokens + token] = f;
    });
  }
};

}  // namespace kvbench::cuda
