// A query as the estimator is asked it, and its answer.
#pragma once

#include <optional>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// One query head of one row: its logits x[j] over the visible tokens (of a cache that a codec
// writes late: over the held ones), e[j] = exp(x[j] - max_logit), and the exact sums, which are
// scaled by exp(-exact_max). Where x is null, logits, exponentials and their maximum are those at
// `query_index` of the estimator's block.
struct QueryRow {
  const double* x = nullptr;
  const double* e = nullptr;
  double max_logit = 0.0;
  const double* exact_output = nullptr;  // [dv]
  double exact_max = 0.0;
  double exact_normalizer = 0.0;  // Z exp(-exact_max)
  Index row = 0;                  // which row and query head it is
  int head = 0;
  Index query_index = 0;  // r * G + g of the block
  // Where x is of keys as a codec gives them back: the logits of the keys themselves, with their
  // exponentials and largest as above; else null.
  const double* exact_x = nullptr;
  const double* exact_e = nullptr;
  double exact_row_max = 0.0;
};

struct Answer {
  std::vector<double> answer;       // [dv] z
  std::vector<double> numerator;    // [dv] N^ exp(-exact_max)
  double normalizer = 0.0;          // tau exp(-exact_max)
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
