#include "sketch/pending_answer.hpp"

#include <cmath>

namespace kvbench {
namespace {

// x e^log_factor, also where the factor alone is too large or too small for a double.
double scaled(double x, double factor, double log_factor) {
  if (std::isnormal(factor) || x == 0.0 || !std::isfinite(log_factor)) return x * factor;
  const double half = std::exp(0.5 * log_factor);
  return x * half * half;
}

}  // namespace

void PendingAnswer::set_sums(double shift, const TokenSums& sums) {
  const double z = query.exact.normalizer;
  log_to_exact = shift - query.exact.largest_logit;
  to_exact = std::exp(log_to_exact);
  from_exact = std::exp(query.exact.largest_logit - shift);
  const double exact_sum = z * from_exact;
  tau = exact_denominator ? exact_sum : sums.den;
  answer.empty_denominator = !(tau > 0.0) || (rule && tau <= rule->least_denominator * sums.num);
  if (exact_denominator && !std::isnormal(from_exact)) answer.empty_denominator = false;
  answer.normalizer =
      exact_denominator && !std::isnormal(from_exact) ? z : scaled(tau, to_exact, log_to_exact);
  answer.numerator_mass =
      exact_numerator && !std::isnormal(from_exact)
          ? 1.0
          : scaled(exact_numerator ? exact_sum : sums.num, to_exact, log_to_exact) / z;
  answer.denominator_mass = answer.normalizer / z;
  if (exact_numerator) {
    answer.kept_mass = 1.0;
  } else if (answer.rows_are_tokens) {
    answer.kept_mass = sums.kept * std::exp(largest_logit - query.exact.largest_logit) / z;
  }
}

const Answer& PendingAnswer::finish(const double* numerator, Index dv) {
  const std::size_t size = dv;
  answer.numerator.resize(size, 0.0);
  answer.answer.assign(size, 0.0);
  for (std::size_t k = 0; k < size; ++k) {
    answer.numerator[k] = exact_numerator
                              ? query.exact.output[k] * (query.exact.normalizer * from_exact)
                              : answer.numerator[k] + factor * numerator[k];
    const double under_shift = answer.numerator[k];
    answer.numerator[k] = scaled(under_shift, to_exact, log_to_exact);
    if (answer.empty_denominator) continue;
    answer.answer[k] = exact_denominator && !std::isnormal(from_exact)
                           ? answer.numerator[k] / query.exact.normalizer
                           : under_shift / tau;
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
