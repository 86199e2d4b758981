// The fit of attention_matching from its definition, densely, in long double.
#pragma once

#include <string>
#include <vector>

#include "core/stream.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {

struct NaiveMatching {
  Index budget = 0;
  Index sinks = 0;
  Index recent = 0;
  std::string select = "rms";  // rms, max, mean, omp
  bool fits_weights = true;
  bool fits_values = true;
  Index rows = 256;  // 0: of the whole prompt
  bool masked = true;
  Real ridge = 1e-6L;
  Index steps = 2;
  Real low = -3;
  Real high = 3;
  Real drop = -7;
  Index keys_per_step = 1;
  Index steps_per_solve = 1;
};

struct NaiveMatched {
  std::vector<Index> tokens;  // ascending
  std::vector<Real> weights;
  std::vector<std::vector<Real>> values;  // [t][dv]
  Real sum_residual = 0;
  Real output_residual = 0;
};

// The middle's rows; the prompt does not fit into the budget.
NaiveMatched naive_matching(const Stream& stream, Index prompt, const NaiveMatching& rule);

using RealRows = std::vector<std::vector<Real>>;

// argmin |X C - Y|^2 + shift |C|^2 by the normal equations and elimination with pivots.
RealRows naive_least_squares(const RealRows& x, const RealRows& y, Real shift);

// Largest eigenvalue of X^T X, by the power method.
Real naive_top_eigenvalue(const RealRows& x);

}  // namespace kvbench::test
