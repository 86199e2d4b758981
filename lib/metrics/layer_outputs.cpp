#include "metrics/layer_outputs.hpp"

// Work is shared out here, and bits must not depend on how many threads there are.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "numerics/norm.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

// A block of a product that stays in a core's cache: 64 rows of 512 numbers.
constexpr Index kBlockRows = 64;
constexpr Index kBlockColumns = 512;

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>>;

View view(ConstMatrix matrix) {
  return {matrix.data, matrix.rows, matrix.cols, Eigen::OuterStride<>(matrix.stride)};
}

double l1(const double* x, Index n) {
  double sum = 0.0;
  for (Index k = 0; k < n; ++k) sum += std::abs(x[k]);
  return sum;
}

double l2(const double* x, Index n) {
  double squares = 0.0;
  for (Index k = 0; k < n; ++k) squares += x[k] * x[k];
  return norm(squares, x, n);
}

}  // namespace

LayerOutputs::LayerOutputs(Index rows, Index query_heads, Index hidden, std::size_t settings)
    : rows_(rows), query_heads_(query_heads), hidden_(hidden), settings_(settings) {
  const std::size_t outputs = rows * hidden;
  exact_.output.assign(outputs, 0.0);
  for (Sums& sums : settings_) {
    sums.output.assign(outputs, 0.0);
    sums.head_errors.assign(rows * query_heads, 0.0);
  }
}

void LayerOutputs::add_head(Index head, ConstMatrix weight, ConstMatrix exact,
                            const std::vector<ConstMatrix>& errors) {
  const Index blocks = (rows_ + kBlockRows - 1) / kBlockRows;
  const auto products = std::ssize(errors) + 1;
  parallel_for(products * blocks, [&](Index i) {
    const Index product = i / blocks;  // 0: of the exact outputs
    const ConstMatrix x = product == 0 ? exact : errors[product - 1];
    if (x.data == nullptr) return;
    const Index first = i % blocks * kBlockRows;
    add_rows(head, weight, x, first, std::min(rows_, first + kBlockRows),
             product == 0 ? exact_ : settings_[product - 1]);
  });
}

void LayerOutputs::add_rows(Index head, ConstMatrix weight, ConstMatrix x, Index first, Index last,
                            Sums& sums) const {
  const View w = view(weight);
  const View part = view({x.row(first), last - first, x.cols, x.stride});
  Eigen::VectorXd squares = Eigen::VectorXd::Zero(last - first);
  RowMajor block;
  for (Index column = 0; column < hidden_; column += kBlockColumns) {
    const Index columns = std::min(kBlockColumns, hidden_ - column);
    block.noalias() = part * w.middleCols(column, columns);
    squares += block.rowwise().squaredNorm();
    Eigen::Map<RowMajor, 0, Eigen::OuterStride<>> sum(sums.output.data() + first * hidden_ + column,
                                                      last - first, columns,
                                                      Eigen::OuterStride<>(hidden_));
    sum += block;
  }
  if (sums.head_errors.empty()) return;
  for (Index r = first; r < last; ++r) {
    double& error = sums.head_errors[r * query_heads_ + head];
    if (NormSum::is_safe(squares(r - first))) {
      error = std::sqrt(squares(r - first));
      continue;
    }
    const Eigen::RowVectorXd whole = part.row(r - first) * w;
    error = l2(whole.data(), hidden_);
  }
}

LayerErrors LayerOutputs::errors(std::size_t setting,
                                 const std::vector<std::optional<double>>& residual) const {
  const Sums& sums = settings_.at(setting);
  std::vector<ScoredLayerRow> scored;
  scored.reserve(rows_);
  for (Index r = 0; r < rows_; ++r) {
    const double* error = sums.output.data() + r * hidden_;
    const double* exact = exact_.output.data() + r * hidden_;
    scored.push_back({.error_l2 = l2(error, hidden_),
                      .error_l1 = l1(error, hidden_),
                      .exact_l2 = l2(exact, hidden_),
                      .exact_l1 = l1(exact, hidden_),
                      .head_errors = {sums.head_errors.data() + r * query_heads_,
                                      static_cast<std::size_t>(query_heads_)},
                      .residual = residual[r]});
  }
  return layer_errors(scored);
}

double LayerOutputs::bytes(Index rows, Index query_heads, Index hidden, std::size_t settings,
                           int threads) {
  const double r = rows;
  const auto output = 8.0 * r * hidden;
  const double of_setting = output + 8.0 * r * query_heads;
  return output + of_setting * settings + 8.0 * (kBlockRows * kBlockColumns) * 2.0 * threads;
}

}  // namespace kvbench
