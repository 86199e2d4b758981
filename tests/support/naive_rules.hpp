// Which tokens each deterministic rule holds when each decode row is answered, token by token.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/stream.hpp"

namespace kvbench::test {

// kept[i - P] = tokens kept when row i is answered, ascending.
using KeptSets = std::vector<std::vector<Index>>;

KeptSets naive_window(const Stream& stream, Index prompt, Index budget);
KeptSets naive_dilated_window(const Stream& stream, Index prompt, Index budget, Index dilation);
KeptSets naive_streaming(const Stream& stream, Index prompt, Index budget, Index sinks);

// h2o with semantics paper; key_attention is recent_fraction 0. `group`: mean, max or sum.
KeptSets naive_h2o(const Stream& stream, Index prompt, Index budget, double recent_fraction,
                   const std::string& group);

// h2o with semantics released.
KeptSets naive_released_h2o(const Stream& stream, Index prompt, Index budget,
                            double recent_fraction, const std::string& group);

// Per row, the tokens of most attention.
KeptSets naive_oracle_topk(const Stream& stream, Index prompt, Index budget,
                           const std::string& group);

// Farthest-first centres over tokens [first, last) starting at token `start`, in order of choice.
std::vector<Index> naive_farthest_first(ConstMatrix points, Index first, Index last, Index start,
                                        Index count);
// max over [first, last) of the distance to the nearest centre.
double naive_covering_radius(ConstMatrix points, Index first, Index last,
                             const std::vector<Index>& centres);

// Linearly interpolated quantile of the distances between the keys of tokens floor(m n/128).
double naive_delta_quantile(const Stream& stream, double quantile);

double naive_distance(ConstMatrix points, Index i, Index j);

}  // namespace kvbench::test
