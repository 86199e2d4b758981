// A stream written by hand by the weights of its tokens.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "support/owned_stream.hpp"

namespace kvbench::test {

// One query head, every query 1, key ln(a_j), scale 1: token j weighs a_j in every row that sees
// it, at temperature tau a_j^(1/tau).
inline std::unique_ptr<OwnedStream> weighted_tokens(const std::vector<double>& a,
                                                    const Rows& values) {
  Rows keys;
  for (const double weight : a) keys.push_back({std::log(weight)});
  return stream_of(keys, values, {Rows(a.size(), {1.0})});
}

// The same, every value 1.
inline std::unique_ptr<OwnedStream> weighted_tokens(const std::vector<double>& a) {
  return weighted_tokens(a, Rows(a.size(), {1.0}));
}

}  // namespace kvbench::test
