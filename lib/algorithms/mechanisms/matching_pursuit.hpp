// Orthogonal matching pursuit: tokens whose weighted exponentials add up to the softmax sums of
// reference queries, chosen one after another.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/mechanisms/matched_attention.hpp"

namespace kvbench {

// Shared work: exponentials of the references' logits under the largest of each, [tokens,
// references]; 0 where one does not see the token.
struct ReferenceExponentials {
  using Result = AlignedDoubles;
  References references;
  double size = 0.0;  // bytes of the result

  Result compute(const SharedContext& context) const;
  double bytes() const { return size; }
  auto operator<=>(const ReferenceExponentials&) const = default;
};
ReferenceExponentials reference_exponentials(const References& references,
                                             const StreamShape& shape);

struct PursuitRule {
  double ridge = 1e-6;  // times the squared Frobenius norm over the tokens
  double lowest = 0.0;  // weights
  double highest = 0.0;
  double dropped = 0.0;  // tokens that weigh less are dropped for good, and others chosen for them
  Index keys_per_step = 1;
  Index steps_per_solve = 1;  // between two solves new tokens weigh `lowest`
};

struct PursuedTokens {
  std::vector<std::int32_t> tokens;  // ascending; fewer than asked for if too many were dropped
  std::vector<double> weights;
};

// `count` of the references' tokens, of equal correlations the lower one. `sums`: by reference, of
// all its exponentials. Throws CellError where a system is singular (ridge 0).
PursuedTokens pursue(const AlignedDoubles& exponentials, const std::vector<double>& sums,
                     const References& references, Index count, const PursuitRule& rule);

// Bytes that choosing `count` of so many tokens takes: their products by pairs, all of them again,
// and a Cholesky factor.
double pursuit_bytes(Index tokens, Index count);

}  // namespace kvbench
