// The answer of the estimator to a query.
#pragma once

#include <optional>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// Exact sums are scaled by exp(-m), m the largest logit of exact attention.
struct Answer {
  std::vector<double> answer;       // [dv] z
  std::vector<double> numerator;    // [dv] N^ exp(-m)
  double normalizer = 0.0;          // tau exp(-m)
  bool empty_denominator = false;   // no row, not positive, or less than the sketch's rule asks
                                    // for: answer = 0, before it is clamped
  std::optional<bool> clamped;      // the sketch's rule changed it; none: it leaves answers
  std::optional<double> kept_mass;  // sum of p_j over distinct tokens whose value is kept
  double numerator_mass = 0.0;      // sum w_num e^x / Z
  double denominator_mass = 0.0;    // sum w_den e^x / Z
  // KL(p^ || p), p^_j proportional to w_den e^x_j; none if one of these is negative.
  std::optional<double> kl_divergence;
  // Over the tokens whose key is read: root mean square of x~ - x less its mean weighted by p, x~
  // of keys as a codec gives them back; none without a codec, or without such tokens.
  std::optional<double> score_error;
  bool is_stored = false;       // a codec wrote what was read
  bool rows_are_tokens = true;  // false: kept_mass and kl_divergence have no meaning
};

}  // namespace kvbench
