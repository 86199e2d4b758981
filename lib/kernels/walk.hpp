// Parts of self-balancing walks (Alweiss, Liu and Sawhney) with an exponential kernel: the
// mechanism of SoftmaxBalance and of BalanceKV as evaluated.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// K_ij = exp(min(beta <k_i, k_j> - offset, cap)) (<v_i, v_j> value_scale + value_offset).
struct WalkKernel {
  double beta = 1.0;
  double offset = 0.0;
  double cap = 700.0;
  double value_scale = 1.0;
  double value_offset = 0.0;
};

// For j = 0, 1, ..: y_j = sum over i < j of eta_i K_ij, p_j = 1/2 - gain y_j clamped to [0, 1],
// eta_j = +1 iff U_j < p_j.
struct WalkRule {
  double gain = 0.0;
  bool first_is_plus = false;  // eta_0 = +1 without a draw
};

// Rows of a matrix gathered into one contiguous [tokens, cols] matrix.
struct Gathered {
  std::vector<double> data;
  ConstMatrix view;

  Gathered() = default;
  Gathered(ConstMatrix from, const std::vector<Index>& tokens) {
    data.reserve(tokens.size() * static_cast<std::size_t>(from.cols));
    for (const Index token : tokens) {
      data.insert(data.end(), from.row(token), from.row(token) + from.cols);
    }
    view = {data.data(), std::ssize(tokens), from.cols};
  }
  Gathered(Gathered&&) = default;
  Gathered& operator=(Gathered&&) = default;
};

// Tokens of one walk.
struct WalkTokens {
  WalkKernel kernel;
  Gathered keys;    // [m, d]
  Gathered values;  // [m, dv], or no rows: <v_i, v_j> = 1
};

// The tokens of walk w of a batch, made when they are wanted; from any thread. In one batch d is
// the same for all walks, and so is dv.
using WalkSource = std::function<WalkTokens(Index w)>;

struct WalkResult {
  std::vector<std::int8_t> signs;
  std::int64_t clamped = 0;           // steps whose p lay outside [0, 1]
  double max_abs_p_minus_half = 0.0;  // over the steps that drew, p clamped
  std::vector<std::int64_t> histogram = std::vector<std::int64_t>(20, 0);  // p in 20 equal bins

  // The next token's sign, +1 or -1, if `wanted` is its p before the clamp.
  int draw(const WalkRule& rule, double wanted, double uniform) {
    const double p = std::clamp(wanted, 0.0, 1.0);
    const bool forced = signs.empty() && rule.first_is_plus;
    signs.push_back(forced || uniform < p ? 1 : -1);
    if (!forced) {
      if (wanted < 0.0 || wanted > 1.0) ++clamped;
      max_abs_p_minus_half = std::max(max_abs_p_minus_half, std::abs(p - 0.5));
      ++histogram[static_cast<std::size_t>(std::min(19.0, p * 20.0))];
    }
    return signs.back();
  }
};

// K of the walks of a batch, kept where the kernel table computes, for walks that differ in their
// coins and their gain alone. Only the table that made it can read it, and must outlive it.
class WalkMatrices {
 public:
  WalkMatrices() = default;
  WalkMatrices(const WalkMatrices&) = delete;
  WalkMatrices& operator=(const WalkMatrices&) = delete;
  virtual ~WalkMatrices() = default;

  // The host's memory for a walk over m tokens, at most.
  static double bytes(Index m) {
    const auto rows = static_cast<double>(m);
    return sizeof(double) * (rows * (rows + 8.0) / 2.0 + 2.0 * rows);
  }
};

}  // namespace kvbench
