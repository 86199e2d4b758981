// The exact reference of one stream at the scored rows, computed once for all cells of the stream.
#pragma once

#include <vector>

#include "kernels/kernels.hpp"

namespace kvbench {

struct Reference {
  ExactRows exact;                       // outputs a_i, max, Z, sum of squares; index r * G + g
  std::vector<double> exponential_norm;  // [R * G] ||e^(x_i - m_i)||_2, the sink's left out
  std::vector<double> value_spectral;    // [R] ||V_i||_op of the values visible at the row
  std::vector<double> value_frobenius;   // [R] ||V_i||_F
  // Norms of all outputs stacked to A [R * G, dv].
  double output_frobenius = 0.0;
  double output_spectral = 0.0;
  double output_max = 0.0;
};

// Throws CellError if finite inputs give logits, partial sums of logits, or norms that are not (row
// and head named).
Reference make_reference(const Kernels& kernels, const Stream& stream, std::vector<Index> rows);

// Spectral norm of a stack of rows [rows, cols], relative error below 1e-10.
double spectral_norm(ConstMatrix stack);

}  // namespace kvbench
