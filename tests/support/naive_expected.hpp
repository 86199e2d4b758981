// Expected attention from its definition, with explicit matrices in long double.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {

struct NaiveMoments {
  std::vector<Real> mean;        // [d]
  std::vector<Real> covariance;  // [d * d], divisor: rows
};

// The moments of the stream's queries of head g, rows [first, last), without rotation back.
NaiveMoments naive_moments(const Stream& stream, int g, Index first, Index last);

struct NaiveExpected {
  Index future = 512;
  bool covariance = true;
};

// The moments of rows [first, prompt) before rotation, at the mean of the turns by the positions
// [prompt, prompt + future).
NaiveMoments naive_future_moments(const Stream& stream, int g, Index first, Index prompt,
                                  Index future);

// Softmax over tokens [first, prompt) of their expected logits, the mean over query heads.
std::vector<Real> naive_expected_attention(const Stream& stream, Index first, Index prompt,
                                           const NaiveExpected& rule);

// Lower triangular L with L L^T = a [d * d].
std::vector<std::vector<Real>> naive_cholesky(const std::vector<double>& a, std::size_t d);

}  // namespace kvbench::test
