// An answer on its way: its masses are known from the sums over tokens, its vectors once the values
// have been read.
#pragma once

#include <memory>

#include "kernels/resident_rows.hpp"
#include "sketch/answer.hpp"
#include "sketch/query_row.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

struct PendingAnswer {
  // `asked.exact.output` must live until finish(). `row_largest`: the largest logit of the keys
  // themselves. `numerator_factor`: WeightsByToken::factor().
  PendingAnswer(const QueryRow& asked, double row_largest, const Sketch& sketch,
                double numerator_factor)
      : query(asked),
        largest_logit(row_largest),
        factor(numerator_factor),
        exact_numerator(sketch.exact_numerator),
        exact_denominator(sketch.exact_denominator),
        rule(sketch.answer_rule) {}

  // Sets all but the vectors and the KL divergence.
  void set_sums(double shift, const TokenSums& sums);
  // `numerator`: [dv], of the tokens' own values, less the factor and under the same shift. To be
  // called once.
  const Answer& finish(const double* numerator, Index dv);

  QueryRow query;
  double largest_logit;
  double factor;
  bool exact_numerator;
  bool exact_denominator;
  std::shared_ptr<const AnswerRule> rule;

  Answer answer;  // numerator, until finish(): that of own rows, or none
  double tau = 0.0;
  double log_to_exact = 0.0;  // this shift less that of the exact sums
  double to_exact = 0.0;      // its exponential, 0 or infinite where no double holds it
  double from_exact = 0.0;    // the factor back

 private:
  void clamp();
};

}  // namespace kvbench
