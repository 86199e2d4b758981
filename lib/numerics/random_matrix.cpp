#include "numerics/random_matrix.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/canonical.hpp"
#include "numerics/logit_noise.hpp"

namespace kvbench {
namespace {

// Columns [d, d], each a row of `columns`, made orthonormal one after another, twice against
// rounding.
void orthonormalise(std::vector<double>& columns, Index d) {
  for (Index j = 0; j < d; ++j) {
    double* column = columns.data() + j * d;
    for (int twice = 0; twice < 2; ++twice) {
      for (Index before = 0; before < j; ++before) {
        const double* other = columns.data() + before * d;
        const double overlap = canonical_dot(other, column, d);
        for (Index i = 0; i < d; ++i) column[i] = std::fma(-overlap, other[i], column[i]);
      }
    }
    const double norm = std::sqrt(canonical_dot(column, column, d));
    for (Index i = 0; i < d; ++i) column[i] /= norm;
  }
}

std::vector<double> transposed(const std::vector<double>& a, Index d) {
  std::vector<double> out(a.size());
  for (Index i = 0; i < d; ++i) {
    for (Index j = 0; j < d; ++j) {
      out[i * d + j] = a[j * d + i];
    }
  }
  return out;
}

}  // namespace

std::vector<double> normal_vector(const CounterRng& draw, Index d, std::uint32_t row,
                                  std::uint32_t round) {
  std::vector<double> out;
  for (Index k = 0; k < d; ++k) {
    out.push_back(normal_quantile(draw.uniform53(row, static_cast<std::uint32_t>(k), round)));
  }
  return out;
}

std::vector<double> normal_matrix(const CounterRng& draw, Index rows, Index d) {
  std::vector<double> out;
  out.reserve(rows * d);
  for (Index r = 0; r < rows; ++r) {
    const std::vector<double> row = normal_vector(draw, d, static_cast<std::uint32_t>(r));
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

std::vector<double> haar_matrix(const CounterRng& draw, Index d, std::uint32_t round) {
  std::vector<double> a;
  for (Index r = 0; r < d; ++r) {
    const std::vector<double> row = normal_vector(draw, d, static_cast<std::uint32_t>(r), round);
    a.insert(a.end(), row.begin(), row.end());
  }
  std::vector<double> columns = transposed(a, d);
  orthonormalise(columns, d);
  return transposed(columns, d);
}

std::vector<double> stacked_haar_matrices(const CounterRng& draw, Index rows, Index d) {
  std::vector<double> out;
  out.reserve((rows + d) * d);
  for (std::uint32_t round = 0; std::ssize(out) < rows * d; ++round) {
    const std::vector<double> block = haar_matrix(draw, d, round);
    out.insert(out.end(), block.begin(), block.end());
  }
  out.resize(rows * d);
  return out;
}

std::vector<double> fair_signs(const CounterRng& draw, Index d) {
  std::vector<double> out;
  for (Index k = 0; k < d; ++k) {
    out.push_back(draw.uniform(static_cast<std::uint32_t>(k)) < 0.5 ? 1.0 : -1.0);
  }
  return out;
}

bool is_power_of_two(Index d) { return d > 0 && (d & (d - 1)) == 0; }

void hadamard_transform(double* x, Index d) {
  for (Index half = 1; half < d; half *= 2) {
    for (Index first = 0; first < d; first += 2 * half) {
      for (Index k = first; k < first + half; ++k) {
        const double sum = x[k] + x[k + half];
        x[k + half] = x[k] - x[k + half];
        x[k] = sum;
      }
    }
  }
  const double root = std::sqrt(static_cast<double>(d));
  for (Index k = 0; k < d; ++k) x[k] /= root;
}

}  // namespace kvbench
