// Logits of unscored rows, against the tokens that can be kept then, no others.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

// Logits of kept tokens, for algorithms with Needs::kept_tokens_only.
class KeptLogits {
 public:
  static constexpr Index kRows = 60;  // at once; more rows mean more tokens that are kept no longer

  explicit KeptLogits(const Stream& stream) : stream_(stream) {}

  // Rows [first, last), at most kRows of them, against the tokens of `sketch`, which holds what is
  // kept before row `first`, and the rows' own tokens.
  void compute(const Sketch& sketch, Index first, Index last);

  // A row of the last call; valid until the next one.
  RowLogits row(Index row) const;

 private:
  const Stream& stream_;
  Index first_ = 0;
  std::vector<std::int32_t> tokens_;  // the columns
  std::vector<std::int32_t> column_;  // [n] by token, -1: none
  Index stride_ = 0;
  std::vector<double> x_;  // [rows * G, stride]
};

}  // namespace kvbench
