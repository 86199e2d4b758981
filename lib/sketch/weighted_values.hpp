// Weighted sums of value rows for many questions at once: the values are read once for all.
#pragma once

#include <cstdint>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

// sums(q) = sum over entries (j, c) of question q of c v_j. Each sum runs over its tokens in
// ascending order in one chain of fused multiply-adds per element, so that its bits depend neither
// on the other questions nor on the order in which its entries came.
class WeightedValues {
 public:
  explicit WeightedValues(ConstMatrix values);

  // One more question: coefficient c[i] for token tokens[i], distinct tokens.
  void add(const std::int32_t* tokens, const double* c, Index count);
  void add(const std::vector<std::int32_t>& tokens, const std::vector<double>& c) {
    add(tokens.data(), c.data(), static_cast<Index>(tokens.size()));
  }
  Index questions() const { return static_cast<Index>(entries_.size()); }

  // [questions, dv]; the questions are forgotten.
  void sums(std::vector<double>& out);

 private:
  struct Entry {
    std::int32_t token;
    double c;
  };

  // Tokens of any question, ascending, and their places by token.
  void collect_tokens();

  const ConstMatrix values_;
  std::vector<std::vector<Entry>> entries_;
  std::vector<std::vector<Entry>> spare_;  // storage of earlier questions
  std::vector<std::int32_t> place_of_;     // [n]
  std::vector<std::int32_t> tokens_;
  std::vector<double> coefficients_;  // [tokens, questions padded to whole blocks]
  std::vector<double> sums_;          // [questions padded, dv]
};

}  // namespace kvbench
