// One query head of one row, as the estimator is asked.
#pragma once

#include <optional>

#include "kernels/kernels.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// Logits of one query by token: over the visible tokens, or over the held ones of a cache that a
// codec writes late.
struct TokenLogits {
  const double* x = nullptr;  // [n]
  const double* e = nullptr;  // [n] exp(x - largest)
  double largest = 0.0;
};

// Logits of query `query_index` (r * G + g) of the block, which must live as long.
inline TokenLogits logits_of(const LogitBlock& block, Index query_index) {
  return {block.logits.data() + query_index * block.tokens,
          block.exps.data() + query_index * block.tokens, block.max_logit[query_index]};
}

// The logits that an answer reads, and those of the keys themselves. They differ where a codec
// wrote the keys.
struct ReadLogits {
  ReadLogits(const TokenLogits& keys)  // NOLINT(google-explicit-constructor)
      : read(keys), original(keys) {}
  ReadLogits(const TokenLogits& decoded, const TokenLogits& keys) : read(decoded), original(keys) {}

  bool differ() const { return read.x != original.x; }

  TokenLogits read;
  TokenLogits original;
};

// Exact attention of one query.
struct ExactAnswer {
  const double* output = nullptr;  // [dv]
  double largest_logit = 0.0;
  double normalizer = 0.0;  // Z exp(-largest_logit)
};

// The exact answer to query `query_index` (r * G + g) of `rows`, which must live as long.
inline ExactAnswer exact_of(const ExactRows& rows, Index query_index, Index dv) {
  const auto at = static_cast<std::size_t>(query_index);
  return {rows.outputs.data() + query_index * dv, rows.max_logit[at], rows.normalizer[at]};
}

struct QueryRow {
  Index row = 0;
  int head = 0;
  Index query_index = 0;  // r * G + g of the estimator's block
  ExactAnswer exact;
  std::optional<ReadLogits> logits;  // none: the block's, at query_index
};

}  // namespace kvbench
