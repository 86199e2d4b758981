// Canonical logits of many queries against many tokens: products at the speed of a matrix product,
// each one still a chain of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.hpp"
#include "numerics/aligned.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// Adds the stream's bias (ALiBi) to the logits x of row `row` and query head g with tokens [first,
// last), or with those of a list; nothing without one.
void add_alibi(const Stream& stream, int g, Index row, Index first, Index last, double* x);
void add_alibi(const Stream& stream, int g, Index row, const std::vector<std::int32_t>& tokens,
               double* x);

// Rows [first, last) of a matrix, copied in panels of 8 tokens, dimension-major; what lies past
// the last token is of no use.
class PackedKeys {
 public:
  static constexpr Index kStep = 16;  // tokens are asked for by multiples of this

  static Index whole_steps(Index tokens) { return (tokens + kStep - 1) / kStep * kStep; }

  PackedKeys(ConstMatrix keys, Index first, Index last);
  // The rows of a list: "token first() + j" is then tokens[j], first() = 0.
  PackedKeys(ConstMatrix keys, const std::vector<std::int32_t>& tokens);

  Index first() const { return first_; }
  // last - first, rounded up to whole steps.
  Index padded() const { return padded_; }

  // out[q * stride + (j - begin)] = logit of query q and token first() + j, j in [begin, end):
  // scale * canonical_dot, then the soft-cap; a bias is the caller's (add_alibi). queries[q] points
  // to d numbers; begin and end are multiples of kStep, at most padded().
  void logits(const StreamShape& shape, const std::vector<const double*>& queries, Index begin,
              Index end, double* out, Index stride) const;

 private:
  // `row_of(j)`: the j-th row, j in [0, count).
  template <class RowOf>
  void pack(Index count, const RowOf& row_of);

  Index first_;
  Index padded_;
  Index d_;
  AlignedDoubles panels_;  // [padded / 8, d, 8]
};

}  // namespace kvbench
