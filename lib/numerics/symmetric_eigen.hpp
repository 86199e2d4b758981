// Eigenvalues and eigenvectors of small symmetric matrices, with the same bits on every machine.
#pragma once

#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

struct SymmetricEigen {
  std::vector<double> values;                // [d], descending
  std::vector<std::vector<double>> vectors;  // [d][d], of unit length, in the order of the values
};

// Decomposition of a symmetric matrix a [d * d], row-major, whose numbers are finite: cyclic Jacobi
// rotations until what is off the diagonal is below 2^-52 of the matrix in Frobenius norm.
SymmetricEigen symmetric_eigen(std::vector<double> a, Index d);

}  // namespace kvbench
