// Rotary positions by definition: every pair of a vector turned by its own angle, in long double.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {

// The vector [d] turned by `positions`: pair p by the angle positions * inv_freq[p].
std::vector<Real> naive_rotated(const Rope& rope, const std::vector<Real>& vector, Real positions);

// Final logits of query (g, row) against kept tokens, ascending, as a cache of h slots sees them:
// key j is turned from position j to the place that its slot has when the query is in slot
// h - 1.
std::vector<Real> naive_cache_logits(const Stream& stream, int g, Index row,
                                     const std::vector<Index>& kept);

// Softmax over those logits, and its answer [dv].
struct NaiveCacheRow {
  std::vector<Real> x;
  std::vector<Real> p;
  std::vector<Real> z;
};
NaiveCacheRow naive_cache_row(const Stream& stream, int g, Index row,
                              const std::vector<Index>& kept);

}  // namespace kvbench::test
