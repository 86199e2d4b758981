// Canonical logits of a tile: many queries against kTileTokens consecutive tokens.
#pragma once

#include <vector>

#include "core/matrix_view.hpp"
#include "core/stream.hpp"

namespace kvbench {

inline constexpr Index kTileTokens = 256;  // tiles start at multiples of this

// Keys [first, first + kTileTokens) of a stream, packed for LogitTile::compute: panels of 8 tokens,
// dimension-major; tokens past the end are zero.
class KeyTile {
 public:
  KeyTile(ConstMatrix keys, Index first);

  Index first() const { return first_; }

  // out[q * kTileTokens + (j - first)] = logit of query q and token j: scale * canonical_dot, then
  // the soft-cap. queries[q] points to d numbers.
  void logits(const StreamShape& shape, const std::vector<const double*>& queries,
              double* out) const;

 private:
  Index first_;
  Index d_;
  std::vector<double> packed_;
};

}  // namespace kvbench
