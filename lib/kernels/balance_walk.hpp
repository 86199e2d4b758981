// The self-balancing walk on the CPU. Canonical: a walk has the same bits whether its matrix is
// kept or computed row by row on the way, in memory O(m).
#pragma once

#include <vector>

#include "kernels/walk.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// K below its diagonal. Row j is kept as K_ij / scale_j with scale_j = its largest exponential, so
// that none overflows.
class WalkMatrix {
 public:
  // `keys` [m, d]; `values` [m, dv], or no rows: <v_i, v_j> = 1.
  WalkMatrix(const WalkKernel& kernel, ConstMatrix keys, ConstMatrix values);

  Index size() const { return std::ssize(scale_); }
  // K_ij / scale_j for i < j, then zeros up to a multiple of eight.
  const double* row(Index j) const { return rows_.data() + starts_[j]; }
  double scale(Index j) const { return scale_[j]; }

 private:
  std::vector<double> rows_;
  std::vector<std::size_t> starts_;  // start of row j in rows_
  std::vector<double> scale_;
};

// Bytes that computing rows takes over m tokens: keys and values, both as a kernel lays them out,
// some rows of both products, and signs.
double walk_bytes(Index m, Index d, Index dv);

// `uniforms` [m].
WalkResult balance_walk(const WalkRule& rule, const WalkMatrix& matrix,
                        const std::vector<double>& uniforms);
WalkResult balance_walk(const WalkRule& rule, const WalkKernel& kernel, ConstMatrix keys,
                        ConstMatrix values, const std::vector<double>& uniforms);

}  // namespace kvbench
