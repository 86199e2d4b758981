#include "storage/stored_norm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/canonical.hpp"
#include "storage/half.hpp"

namespace kvbench {

double square_safe_factor(double largest) {
  // Its inverse is a number too.
  return std::ldexp(1.0, std::clamp(-std::ilogb(largest), -1000, 1000));
}

double vector_norm(const double* x, Index d) {
  double largest = 0.0;
  for (Index k = 0; k < d; ++k) largest = std::max(largest, std::fabs(x[k]));
  if (largest == 0.0) return 0.0;
  const double factor = square_safe_factor(largest);
  double sum = 0.0;
  for (Index k = 0; k < d; ++k) {
    const double scaled = factor * x[k];
    sum = fused(scaled, scaled, sum);
  }
  return std::sqrt(sum) / factor;
}

void SquareSums::see(ConstMatrix rows) {
  for (Index i = 0; i < rows.rows; ++i) {
    for (Index k = 0; k < rows.cols; ++k) largest_ = std::max(largest_, std::fabs(rows(i, k)));
  }
}

void SquareSums::add(ConstMatrix rows) {
  const double factor = largest_ > 0.0 ? square_safe_factor(largest_) : 1.0;
  for (Index i = 0; i < rows.rows; ++i) {
    for (Index k = 0; k < rows.cols; ++k) {
      const double x = factor * rows(i, k);
      double& sum = sums_[static_cast<std::size_t>(k)];
      sum = fused(x, x, sum);
    }
  }
}

void put_norm(double size, std::byte* out) {
  // An infinite norm of finite numbers is beyond the range too.
  const double finite = std::min(size, std::numeric_limits<double>::max());
  put_half(finite, out);
}

double get_norm(const std::byte* in) { return get_half(in); }

}  // namespace kvbench
