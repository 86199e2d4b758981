// The norm of a vector as codecs store it.
#pragma once

#include <cstddef>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

inline constexpr Index kStoredNormBytes = 2;

// A power of two that brings numbers up to `largest` > 0 to where squares neither overflow nor
// vanish next to the largest's; times it they are exact.
double square_safe_factor(double largest);

// The largest |x_k|; 0 of none.
double largest_size(const double* x, Index d);

// |x| without overflow and underflow on the way; of 2 x exactly twice that.
double vector_norm(const double* x, Index d);
// Norms of the rows of `vectors`, several side by side.
void vector_norms(ConstMatrix vectors, double* norms);

// Per channel the sum of squares of vectors, times a power of 4 that is the same for all channels
// and keeps the sums finite: for comparing channels.
class SquareSums {
 public:
  explicit SquareSums(Index channels) : sums_(static_cast<std::size_t>(channels), 0.0) {}

  // Every vector is seen before the first is added.
  void see(ConstMatrix rows);
  void add(ConstMatrix rows);
  const std::vector<double>& sums() const { return sums_; }

 private:
  std::vector<double> sums_;
  double largest_ = 0.0;
};

// Writes `size` >= 0 in binary16. Throws CellError beyond its range.
void put_norm(double size, std::byte* out);
double get_norm(const std::byte* in);

}  // namespace kvbench
