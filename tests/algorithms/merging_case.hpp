// Helpers that the tests of merging methods share: cosines of keys, and a stream worked by hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>

#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {

inline Real length_of(const double* x, Index n) {
  Real sum = 0;
  for (Index k = 0; k < n; ++k) sum += static_cast<Real>(x[k]) * x[k];
  return std::sqrt(sum);
}

// The cosine of the keys of tokens a and b; a key shorter than 1e-6 counts as that long.
inline Real naive_cosine(const Stream& stream, Index a, Index b) {
  const Index d = stream.shape.d;
  Real sum = 0;
  for (Index k = 0; k < d; ++k) sum += static_cast<Real>(stream.keys(a, k)) * stream.keys(b, k);
  return sum / std::max<Real>(length_of(stream.keys.row(a), d), 1e-6L) /
         std::max<Real>(length_of(stream.keys.row(b), d), 1e-6L);
}

// For a budget of 9 of which rkv selects: its window of 8 and one more token. Keys: token 0 (1, 0),
// kept as the others' cosines are larger; 1 (3, 4); the window (0, 1). Token 1 is dropped: cosine
// .6 to token 0, .8 to the window, whose first token 2 takes it.
inline std::unique_ptr<OwnedStream> merging_stream() {
  Rows keys = {{1, 0}, {3, 4}};
  Rows values = {{10}, {6}};
  for (int j = 0; j < 9; ++j) {
    keys.push_back({0, 1});
    values.push_back({2});
  }
  return stream_of(keys, values, {Rows(11, {0, 0})});
}

}  // namespace kvbench::test
