// Rows of a stream whose exponentials stay where the kernel table computes, and answers there.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// Weights of a token in the sums of an answer.
struct WeightEntry {
  double num = 0.0;
  double den = 0.0;
  double log = 0.0;         // den ln(den); -inf if den is negative
  std::int32_t token = -1;  // one that the row sees
  std::int32_t kept = 0;    // 1 if its value is kept, else 0

  bool operator==(const WeightEntry&) const = default;
};

// Over an answer's tokens, e = exp(x - shift).
struct TokenSums {
  double num = 0.0;   // sum num e
  double den = 0.0;   // sum den e
  double log = 0.0;   // sum log e
  double kept = 0.0;  // sum kept e

  bool operator==(const TokenSums&) const = default;
};

// The same if the shift is the largest logit m that the row sees.
struct AnswerMasses {
  TokenSums sums;
  double largest_den = 0.0;  // max den e

  bool operator==(const AnswerMasses&) const = default;
};

// Questions in order, each by a part of the weights. Consecutive questions that share their
// first weight share work and are cheapest.
struct AnswerBatch {
  struct Question {
    Index query_index = 0;   // r * G + g of row rows[r] and query head g
    Index first_weight = 0;  // by weights [first_weight, first_weight + weights)
    Index weights = 0;
  };

  std::vector<WeightEntry> weights;  // ascending by token within a question
  std::vector<Question> questions;

  void clear() {
    weights.clear();
    questions.clear();
  }
};

class ResidentRows {
 public:
  explicit ResidentRows(std::vector<double> max_logit) : max_logit_(std::move(max_logit)) {}
  virtual ~ResidentRows() = default;

  const std::vector<double>& max_logit() const { return max_logit_; }  // [R * G]  m

  // Whether a larger batch would gain nothing.
  virtual bool is_enough(const AnswerBatch& batch) const = 0;

  // For every question of the batch: sum num e v, [questions, dv], one chain of fused multiply-adds
  // per element, tokens ascending; and its masses, which are summed as Lanes are.
  virtual void answer(const AnswerBatch& batch, std::vector<double>& numerators,
                      std::vector<AnswerMasses>& masses) const = 0;

 private:
  std::vector<double> max_logit_;
};

}  // namespace kvbench
