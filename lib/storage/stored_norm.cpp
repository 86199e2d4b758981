#include "storage/stored_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "storage/half.hpp"

namespace kvbench {

namespace {

constexpr Index kSideBySide = 8;

// Sums of squares of `Count` rows times their factors, each a chain of its own.
template <int Count>
void add_squares(ConstMatrix rows, const double* factors, double* sums) {
  std::fill_n(sums, Count, 0.0);
  for (Index k = 0; k < rows.cols; ++k) {
    for (int t = 0; t < Count; ++t) {
      const double scaled = factors[t] * rows(t, k);
      sums[t] = fused(scaled, scaled, sums[t]);
    }
  }
}

}  // namespace

double largest_size(const double* x, Index d) {
  Lanes some = Lanes::all(0.0);
  Index k = 0;
  for (; k + Lanes::kCount <= d; k += Lanes::kCount) {
    some = Lanes::max(Lanes::abs(Lanes::load(x + k)), some);
  }
  double largest = some.largest();
  for (; k < d; ++k) largest = std::max(largest, std::fabs(x[k]));
  return largest;
}

double square_safe_factor(double largest) {
  // Its inverse is a number too.
  const int exponent = static_cast<int>(bits_of(largest) >> 52) - 1023;
  const int power = std::clamp(-exponent, -1000, 1000);
  return from_bits(static_cast<std::uint64_t>(1023 + power) << 52);
}

void vector_norms(ConstMatrix vectors, double* norms) {
  for (Index first = 0; first < vectors.rows; first += kSideBySide) {
    const Index count = std::min(kSideBySide, vectors.rows - first);
    std::array<double, kSideBySide> factors;
    std::array<double, kSideBySide> sums;
    for (Index t = 0; t < count; ++t) {
      const double largest = largest_size(vectors.row(first + t), vectors.cols);
      factors[t] = largest > 0.0 ? square_safe_factor(largest) : 0.0;
    }
    const ConstMatrix rows(vectors.row(first), count, vectors.cols, vectors.stride);
    if (count == kSideBySide) {
      add_squares<kSideBySide>(rows, factors.data(), sums.data());
    } else {
      for (Index t = 0; t < count; ++t) {
        const std::size_t i = t;
        add_squares<1>({rows.row(t), 1, rows.cols}, &factors[i], &sums[i]);
      }
    }
    for (Index t = 0; t < count; ++t) {
      const std::size_t i = t;
      norms[first + t] = factors[i] > 0.0 ? std::sqrt(sums[i]) / factors[i] : 0.0;
    }
  }
}

double vector_norm(const double* x, Index d) {
  double norm = 0.0;
  vector_norms({x, 1, d}, &norm);
  return norm;
}

void SquareSums::see(ConstMatrix rows) {
  for (Index i = 0; i < rows.rows; ++i) {
    largest_ = std::max(largest_, largest_size(rows.row(i), rows.cols));
  }
}

void SquareSums::add(ConstMatrix rows) {
  const double factor = largest_ > 0.0 ? square_safe_factor(largest_) : 1.0;
  for (Index i = 0; i < rows.rows; ++i) {
    for (Index k = 0; k < rows.cols; ++k) {
      const double x = factor * rows(i, k);
      double& sum = sums_[k];
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
