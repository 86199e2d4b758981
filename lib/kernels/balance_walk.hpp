// The self-balancing walk (Alweiss, Liu and Sawhney) with an exponential kernel: the mechanism of
// SoftmaxBalance and of BalanceKV as evaluated.
#pragma once

#include <cstdint>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

// For j = 0, 1, ..: y_j = sum over i < j of eta_i K_ij with
//   K_ij = exp(min(beta <k_i, k_j> - offset, cap)) (<v_i, v_j> value_scale + value_offset),
// p_j = 1/2 - gain y_j clamped to [0, 1], eta_j = +1 iff U_j < p_j.
struct WalkRule {
  double beta = 1.0;
  double offset = 0.0;
  double cap = 700.0;
  double value_scale = 1.0;
  double value_offset = 0.0;
  double gain = 0.0;
  bool first_is_plus = false;  // eta_0 = +1 without a draw
};

struct WalkResult {
  std::vector<std::int8_t> signs;
  std::int64_t clamped = 0;           // steps whose p lay outside [0, 1]
  double max_abs_p_minus_half = 0.0;  // over the steps that drew, p clamped
  std::vector<std::int64_t> histogram = std::vector<std::int64_t>(20, 0);  // of p, 20 equal bins
};

// `keys` [m, d]; `values` [m, dv], or no rows: <v_i, v_j> = 1. `uniforms` [m]. Canonical: bits
// do not depend on blocking.
WalkResult balance_walk(const WalkRule& rule, ConstMatrix keys, ConstMatrix values,
                        const std::vector<double>& uniforms);

}  // namespace kvbench
