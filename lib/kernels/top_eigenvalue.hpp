// The largest eigenvalue of a symmetric positive semidefinite matrix, with a proven error.
#pragma once

#include "core/matrix_view.hpp"

namespace kvbench {

// Relative error below 1e-10. `gram`: [d, d], symmetric, positive semidefinite, both triangles
// filled. Lanczos gives a lower bound; that nothing lies more than 1e-10 above it is proved by a
// Cholesky factorisation of (1 + 1e-10) bound I - gram, and where the proof fails the full
// eigenvalue solver answers.
double top_eigenvalue(ConstMatrix gram);

}  // namespace kvbench
