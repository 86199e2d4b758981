#include "kernels/value_norms.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "core/parallel.hpp"
#include "kernels/top_eigenvalue.hpp"

namespace kvbench::cpu {
namespace {

using Matrix = Eigen::MatrixXd;
constexpr Index kBlock = 64;       // tokens per precomputed Gram matrix
constexpr Index kRowsAtOnce = 64;  // Gram matrices held for one parallel sweep of eigenvalues

// Gram matrices V^T V of any token range, always as a sum of squares: nothing is ever subtracted,
// so a huge value that left the window leaves no rounding behind.
class Grams {
 public:
  explicit Grams(ConstMatrix values) : values_(values) {}

  void add(Matrix& gram, Index first, Index last) const {
    if (last <= first) return;
    const Eigen::Map<const Matrix, 0, Eigen::OuterStride<>> part(
        values_.row(first), values_.cols, last - first, Eigen::OuterStride<>(values_.stride));
    gram.selfadjointView<Eigen::Lower>().rankUpdate(part);
  }

  Matrix range(Index first, Index last) {
    Matrix gram = Matrix::Zero(values_.cols, values_.cols);
    const Index first_block = (first + kBlock - 1) / kBlock;
    const Index last_block = last / kBlock;
    if (first_block >= last_block) {
      add(gram, first, last);
      return gram;
    }
    add(gram, first, first_block * kBlock);
    for (Index b = first_block; b < last_block; ++b) gram += block(b);
    add(gram, last_block * kBlock, last);
    return gram;
  }

 private:
  const Matrix& block(Index b) {
    if (static_cast<Index>(blocks_.size()) <= b) blocks_.resize(static_cast<std::size_t>(b + 1));
    Matrix& gram = blocks_[static_cast<std::size_t>(b)];
    if (gram.size() == 0) {
      gram = Matrix::Zero(values_.cols, values_.cols);
      add(gram, b * kBlock, (b + 1) * kBlock);
    }
    return gram;
  }

  ConstMatrix values_;
  std::vector<Matrix> blocks_;
};

}  // namespace

void value_norms(const Stream& stream, const std::vector<Index>& rows,
                 std::vector<double>& spectral, std::vector<double>& frobenius) {
  const StreamShape& shape = stream.shape;
  spectral.assign(rows.size(), 0.0);
  frobenius.assign(rows.size(), 0.0);
  Grams grams(stream.values);
  Matrix current;
  Index current_lo = -1;
  Index current_end = 0;
  std::vector<Matrix> held;
  for (std::size_t done = 0; done < rows.size(); done += held.size()) {
    held.clear();
    const std::size_t batch = std::min(rows.size() - done, static_cast<std::size_t>(kRowsAtOnce));
    for (std::size_t r = 0; r < batch; ++r) {
      const Index i = rows[done + r];
      const Index lo = shape.first_visible(i);
      if (lo == current_lo && current_end <= i + 1) {
        grams.add(current, current_end, i + 1);
      } else {
        current = grams.range(lo, i + 1);
        current_lo = lo;
      }
      current_end = i + 1;
      held.push_back(current);
    }
    parallel_for(static_cast<Index>(batch), [&](Index r) {
      Matrix& gram = held[static_cast<std::size_t>(r)];
      gram.triangularView<Eigen::StrictlyUpper>() = gram.transpose();
      const auto place = done + static_cast<std::size_t>(r);
      frobenius[place] = std::sqrt(gram.trace());
      spectral[place] = std::sqrt(top_eigenvalue({gram.data(), gram.rows(), gram.cols()}));
    });
  }
}

}  // namespace kvbench::cpu
