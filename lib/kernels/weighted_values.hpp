// Weighted sums of value rows for many questions at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// sums(q) = sum over entries (j, c) of question q of c v_j. Each sum runs over its tokens in
// ascending order in one chain of fused multiply-adds per element, so that its bits do not depend
// on the other questions.
class WeightedValues {
 public:
  virtual ~WeightedValues() = default;

  // Enqueues a sum over these tokens, distinct and ascending; returns its zeroed coefficient array
  // [tokens.size()], valid until the next call. Consecutive sums over the same tokens share work
  // and are cheapest.
  virtual double* ask(const std::vector<std::int32_t>& tokens) = 0;
  virtual Index questions() const = 0;
  // Whether a larger batch would gain nothing.
  virtual bool full() const = 0;

  // [questions, dv]; the questions are forgotten.
  virtual void sums(std::vector<double>& out) = 0;
};
}  // namespace kvbench
