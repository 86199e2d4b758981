// Weighted sums of value rows for many questions at once: the values are read once for all.
#pragma once

#include <cstdint>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

// sums(q) = sum over entries (j, c) of question q of c v_j. Each sum runs over its tokens in
// ascending order in one chain of fused multiply-adds per element, so that its bits do not depend
// on the other questions.
class WeightedValues {
 public:
  explicit WeightedValues(ConstMatrix values);

  // One more question, about these tokens, distinct and ascending. The place for its coefficients
  // [tokens.size()], zeros so far, until the next call. Questions in a row about the same tokens
  // are cheapest.
  double* ask(const std::vector<std::int32_t>& tokens);
  Index questions() const { return static_cast<Index>(questions_.size()); }

  // [questions, dv]; the questions are forgotten.
  void sums(std::vector<double>& out);

 private:
  struct Question {
    std::size_t list = 0;   // of tokens
    std::size_t first = 0;  // of its coefficients
    std::size_t done = 0;   // of them, laid out
  };

  void unite_lists();
  void lay_out(Index first, Index last, Index stride);

  const ConstMatrix values_;
  std::vector<Question> questions_;
  std::vector<std::vector<std::int32_t>> lists_;  // the first `lists_used_` of them
  std::size_t lists_used_ = 0;
  std::vector<double> given_;  // coefficients, question after question
  std::vector<std::uint64_t> asked_about_;
  std::vector<std::int32_t> tokens_;  // of any question, ascending
  std::vector<double> coefficients_;  // [some of tokens_, questions padded to whole blocks]
  std::vector<double> sums_;          // [questions padded, dv]
};

}  // namespace kvbench
