#include "sketch/pending_answer.hpp"

#include <cmath>

namespace kvbench {

void PendingAnswer::set_sums(double shift, const TokenSums& sums) {
  const double z = query.exact_normalizer;
  to_exact = std::exp(shift - query.exact_max);
  from_exact = std::exp(query.exact_max - shift);
  const double exact_sum = z * from_exact;
  tau = exact_denominator ? exact_sum : sums.den;
  answer.empty_denominator = !(tau > 0.0) || (rule && tau <= rule->least_denominator * sums.num);
  answer.normalizer = tau * to_exact;
  answer.numerator_mass = (exact_numerator ? exact_sum : sums.num) * to_exact / z;
  answer.denominator_mass = answer.normalizer / z;
  if (exact_numerator) {
    answer.kept_mass = 1.0;
  } else if (answer.rows_are_tokens) {
    answer.kept_mass = sums.kept * std::exp(query.exact_row_max - query.exact_max) / z;
  }
}

const Answer& PendingAnswer::finish(const double* numerator, Index dv) {
  const auto size = static_cast<std::size_t>(dv);
  answer.numerator.resize(size, 0.0);
  answer.answer.assign(size, 0.0);
  for (std::size_t k = 0; k < size; ++k) {
    answer.numerator[k] = exact_numerator
                              ? query.exact_output[k] * (query.exact_normalizer * from_exact)
                              : answer.numerator[k] + factor * numerator[k];
    if (!answer.empty_denominator) answer.answer[k] = answer.numerator[k] / tau;
    answer.numerator[k] *= to_exact;
  }
  if (rule && !rule->low.empty()) clamp();
  return answer;
}

void PendingAnswer::clamp() {
  answer.clamped = false;
  for (std::size_t k = 0; k < answer.answer.size(); ++k) {
    const double z = answer.answer[k];
    if (z >= rule->low[k] && z <= rule->high[k]) continue;
    answer.answer[k] = z < rule->low[k] ? rule->low[k] : z > rule->high[k] ? rule->high[k] : z;
    answer.clamped = true;
  }
}

}  // namespace kvbench
