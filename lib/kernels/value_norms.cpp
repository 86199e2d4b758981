#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "kernels/cpu_kernels.hpp"
#include "kernels/top_eigenvalue.hpp"
#include "numerics/norm.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

using Matrix = Eigen::MatrixXd;
constexpr Index kBlock = 64;         // tokens per precomputed Gram matrix
constexpr Index kChunk = 128;        // rows whose eigenvalues are followed from one to the next
constexpr Index kChunksAtOnce = 16;  // Gram matrices held for one parallel sweep

// Gram matrices V^T V of any token range (lower triangles), always as a sum of squares: nothing is
// ever subtracted, so a huge value that left the window leaves no rounding behind.
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
    if (std::ssize(blocks_) <= b) blocks_.resize(b + 1);
    Matrix& gram = blocks_[b];
    if (gram.size() == 0) {
      gram = Matrix::Zero(values_.cols, values_.cols);
      add(gram, b * kBlock, (b + 1) * kBlock);
    }
    return gram;
  }

  ConstMatrix values_;
  std::vector<Matrix> blocks_;
};

ConstMatrix with_both_triangles(Matrix& gram) {
  gram.triangularView<Eigen::StrictlyUpper>() = gram.transpose();
  return {gram.data(), gram.rows(), gram.cols()};
}

// Adds a token to both triangles, with the bits of Grams::add().
void add_one(Matrix& gram, const double* value) {
  const Eigen::Map<const Eigen::VectorXd> v(value, gram.cols());
  for (Index k = 0; k < gram.cols(); ++k) gram.col(k) += v[k] * v;
}

// Norms of tokens [first, last), whose squares no Gram matrix holds.
void scaled_norms(ConstMatrix values, Index first, Index last, double& spectral,
                  double& frobenius) {
  const Eigen::Map<const Matrix, 0, Eigen::OuterStride<>> part(
      values.row(first), values.cols, last - first, Eigen::OuterStride<>(values.stride));
  const double largest = part.size() > 0 ? part.cwiseAbs().maxCoeff() : 0.0;
  spectral = frobenius = largest;
  if (!(largest > 0.0) || !std::isfinite(largest)) return;
  const Matrix scaled = part / largest;
  Matrix gram = Matrix::Zero(values.cols, values.cols);
  gram.selfadjointView<Eigen::Lower>().rankUpdate(scaled);
  frobenius = largest * std::sqrt(gram.trace());
  spectral = largest * std::sqrt(top_eigenvalue(with_both_triangles(gram)));
}

// Norms of rows[first..last); `gram` is that of the first row.
void chunk_norms(const Stream& stream, const std::vector<Index>& rows, std::size_t first,
                 std::size_t last, Matrix gram, std::vector<double>& spectral,
                 std::vector<double>& frobenius) {
  Grams grams(stream.values);
  Index lo = stream.shape.first_visible(rows[first]);
  Index end = stream.shape.visible_end(rows[first]);
  Matrix all = gram;
  grams.add(all, end, stream.shape.visible_end(rows[last - 1]));
  FollowedEigenvalue top(with_both_triangles(all), last - first);
  for (std::size_t r = first; r < last; ++r) {
    const Index visible = stream.shape.visible_end(rows[r]);
    const Index from = stream.shape.first_visible(rows[r]);
    if (from == lo && visible == end + 1) {
      add_one(gram, stream.values.row(end));
    } else {
      if (from == lo) {
        grams.add(gram, end, visible);
      } else {
        gram = grams.range(from, visible);
      }
      with_both_triangles(gram);
    }
    lo = from;
    end = visible;
    const double squares = gram.trace();
    if (NormSum::is_safe(squares)) {
      spectral[r] = std::sqrt(top.of({gram.data(), gram.rows(), gram.cols()}));
      frobenius[r] = std::sqrt(squares);
    } else {
      scaled_norms(stream.values, lo, visible, spectral[r], frobenius[r]);
    }
  }
}

void ascending_value_norms(const Stream& stream, const std::vector<Index>& rows,
                           std::vector<double>& spectral, std::vector<double>& frobenius) {
  const Index count = std::ssize(rows);
  spectral.assign(rows.size(), 0.0);
  frobenius.assign(rows.size(), 0.0);
  const Grams grams(stream.values);
  const Index chunks = (count + kChunk - 1) / kChunk;
  Matrix start;
  Index lo = -1;
  Index end = 0;
  std::vector<Matrix> starts;
  for (Index done = 0; done < chunks; done += std::ssize(starts)) {
    starts.clear();
    for (Index c = done; c < std::min(done + kChunksAtOnce, chunks); ++c) {
      const Index i = rows[c * kChunk];
      if (stream.shape.first_visible(i) != lo) {
        lo = end = stream.shape.first_visible(i);
        start = Matrix::Zero(stream.shape.dv, stream.shape.dv);
      }
      grams.add(start, end, stream.shape.visible_end(i));
      end = stream.shape.visible_end(i);
      starts.push_back(start);
    }
    parallel_for(std::ssize(starts), [&](Index c) {
      const Index first = (done + c) * kChunk;
      chunk_norms(stream, rows, first, std::min(first + kChunk, count), std::move(starts[c]),
                  spectral, frobenius);
    });
  }
}

}  // namespace

void CpuKernels::value_norms(const Stream& stream, const std::vector<Index>& rows,
                             std::vector<double>& spectral, std::vector<double>& frobenius) const {
  if (std::is_sorted(rows.begin(), rows.end())) {
    ascending_value_norms(stream, rows, spectral, frobenius);
    return;
  }
  std::vector<Index> ascending = rows;
  std::sort(ascending.begin(), ascending.end());
  std::vector<double> ascending_spectral;
  std::vector<double> ascending_frobenius;
  ascending_value_norms(stream, ascending, ascending_spectral, ascending_frobenius);
  spectral.resize(rows.size());
  frobenius.resize(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const std::size_t place =
        std::lower_bound(ascending.begin(), ascending.end(), rows[r]) - ascending.begin();
    spectral[r] = ascending_spectral[place];
    frobenius[r] = ascending_frobenius[place];
  }
}

}  // namespace kvbench
