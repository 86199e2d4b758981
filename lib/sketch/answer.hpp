// A query as the estimator is asked it, and its answer.
#pragma once

#include <optional>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

// One query head of one row: its logits x[j] over the visible tokens, e[j] = exp(x[j] - max_logit),
// and the exact sums, which are scaled by exp(-exact_max). Where x is null, logits, exponentials
// and their maximum are those at `query_index` of the estimator's block.
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
};

struct Answer {
  std::vector<double> answer;           // [dv] z
  std::vector<double> numerator;        // [dv] N^ exp(-exact_max)
  double normalizer = 0.0;              // tau exp(-exact_max)
  bool empty_denominator = false;       // no row, or 0 after the shift: answer = 0
  std::optional<double> kept_mass;      // sum of p_j over distinct tokens whose value is kept
  double numerator_mass = 0.0;          // sum w_num e^x / Z
  double denominator_mass = 0.0;        // sum w_den e^x / Z
  std::optional<double> kl_divergence;  // KL(p^ || p), p^_j proportional to w_den e^x_j
  bool rows_are_tokens = true;          // false: kept_mass and kl_divergence have no meaning
};

}  // namespace kvbench
