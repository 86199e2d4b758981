// The self-balancing walk (Alweiss, Liu and Sawhney) with an exponential kernel: the mechanism of
// SoftmaxBalance and of BalanceKV as evaluated.
#pragma once

#include <cstdint>
#include <vector>

#include "core/matrix_view.hpp"

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

struct WalkResult {
  std::vector<std::int8_t> signs;
  std::int64_t clamped = 0;           // steps whose p lay outside [0, 1]
  double max_abs_p_minus_half = 0.0;  // over the steps that drew, p clamped
  std::vector<std::int64_t> histogram = std::vector<std::int64_t>(20, 0);  // of p, 20 equal bins
};

// K below its diagonal, for walks that differ in their coins and their gain alone. Row j is held as
// K_ij / scale_j with scale_j = its largest exponential, so that none overflows.
class WalkMatrix {
 public:
  // `keys` [m, d]; `values` [m, dv], or no rows: <v_i, v_j> = 1.
  WalkMatrix(const WalkKernel& kernel, ConstMatrix keys, ConstMatrix values);

  Index size() const { return static_cast<Index>(scale_.size()); }
  // K_ij / scale_j for i < j, then zeros up to a multiple of eight.
  const double* row(Index j) const { return rows_.data() + starts_[static_cast<std::size_t>(j)]; }
  double scale(Index j) const { return scale_[static_cast<std::size_t>(j)]; }

  // Memory of a matrix of m rows.
  static double bytes(Index m);

 private:
  std::vector<double> rows_;
  std::vector<std::size_t> starts_;  // of row j in rows_
  std::vector<double> scale_;
};

// `uniforms` [m]. Canonical: the walk has the same bits whether its matrix is held or computed row
// by row on the way, as the second form does in memory O(m).
WalkResult balance_walk(const WalkRule& rule, const WalkMatrix& matrix,
                        const std::vector<double>& uniforms);
WalkResult balance_walk(const WalkRule& rule, const WalkKernel& kernel, ConstMatrix keys,
                        ConstMatrix values, const std::vector<double>& uniforms);

}  // namespace kvbench
