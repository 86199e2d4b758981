// Attention at positions of the cache instead of those of the sequence.
#pragma once

#include <cstdint>
#include <vector>

#include "core/stream.hpp"

namespace kvbench {

// Logits of query head g at row `row` against kept tokens (ascending), the p-th of h at position p
// and the query at h - 1: key j is turned by (row - (h - 1) + p - j) positions, the query not. For
// a key at its own position is not rotated. Needs stream.shape.rope.
void cache_position_logits(const Stream& stream, Index row, int g,
                           const std::vector<std::int32_t>& tokens, std::vector<double>& out);

}  // namespace kvbench
