#include "kernels/exact_attention.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <limits>

#include "core/canonical.hpp"
#include "core/parallel.hpp"

namespace kvbench::cpu {
namespace {

using Eigen::Dynamic;
using Matrix = Eigen::Matrix<double, Dynamic, Dynamic>;
using Stride = Eigen::OuterStride<>;
using ConstMap = Eigen::Map<const Matrix, 0, Stride>;
using Map = Eigen::Map<Matrix, 0, Stride>;

constexpr Index kQueryBlock = 128;  // (row, query head) pairs per task
constexpr Index kKeyTile = 256;
constexpr double kNever = -std::numeric_limits<double>::infinity();

// A row-major [rows, cols] matrix read as its column-major transpose [cols, rows]: nothing moves.
ConstMap transposed(ConstMatrix m, Index first, Index count) {
  return {m.row(first), m.cols, count, Stride(m.stride)};
}

// Running softmax of one query.
struct Running {
  double max_logit = kNever;
  double sum = 0.0;
  double squared_sum = 0.0;
};

// Turns the visible part [lo, hi) of a column of logits into exp(x - m), zeros elsewhere. Returns
// the factor by which everything gathered before has to be multiplied.
double absorb(const StreamShape& shape, double* x, Index lo, Index hi, Index size, Running& run) {
  Lanes largest = Lanes::all(kNever);
  std::fill(x, x + lo, kNever);
  std::fill(x + hi, x + size, kNever);
  if (shape.softcap > 0.0) {
    for (Index j = lo / Lanes::kCount * Lanes::kCount; j < hi; j += Lanes::kCount) {
      canonical_softcap(Lanes::load(x + j), shape.softcap).store(x + j);
    }
    std::fill(x, x + lo, kNever);
    std::fill(x + hi, x + size, kNever);
  }
  for (Index j = 0; j < size; j += Lanes::kCount) {
    largest = Lanes::max(largest, Lanes::load(x + j));
  }
  const double m = std::max(run.max_logit, largest.largest());
  const double rescale = run.max_logit == kNever ? 0.0 : canonical_exp(run.max_logit - m);
  run.max_logit = m;
  Lanes sum = Lanes::all(0.0);
  Lanes squared = Lanes::all(0.0);
  for (Index j = 0; j < size; j += Lanes::kCount) {
    const Lanes e = canonical_exp(Lanes::load(x + j) - Lanes::all(m));
    e.store(x + j);
    sum = sum + e;
    squared = Lanes::fma(e, e, squared);
  }
  run.sum = run.sum * rescale + sum.sum();
  run.squared_sum = run.squared_sum * rescale * rescale + squared.sum();
  return rescale;
}

void attend_block(const Stream& stream, Index first_place, Index last_place, ExactRows& out) {
  const StreamShape& shape = stream.shape;
  const Index group = shape.group;
  const Index count = last_place - first_place;
  const auto row_of = [&](Index q) {
    return out.rows[static_cast<std::size_t>((first_place + q) / group)];
  };

  Matrix queries(shape.d, count);
  for (Index q = 0; q < count; ++q) {
    const int g = static_cast<int>((first_place + q) % group);
    queries.col(q) =
        shape.scale * Eigen::Map<const Eigen::VectorXd>(stream.query(g, row_of(q)), shape.d);
  }
  Matrix outputs = Matrix::Zero(shape.dv, count);
  std::vector<Running> running(static_cast<std::size_t>(count));
  Matrix logits(kKeyTile, count);

  const Index begin = shape.first_visible(row_of(0)) / kKeyTile * kKeyTile;
  const Index end = row_of(count - 1) + 1;
  for (Index start = begin; start < end; start += kKeyTile) {
    const Index tokens = std::min(kKeyTile, end - start);
    const Index padded = (tokens + Lanes::kCount - 1) / Lanes::kCount * Lanes::kCount;
    auto tile = logits.topRows(tokens);
    tile.noalias() = transposed(stream.keys, start, tokens).transpose() * queries;
    for (Index q = 0; q < count; ++q) {
      const Index i = row_of(q);
      const Index lo = std::clamp<Index>(shape.first_visible(i) - start, 0, tokens);
      const Index hi = std::clamp<Index>(i + 1 - start, 0, tokens);
      double* x = logits.col(q).data();
      if (lo >= hi) {
        std::fill(x, x + padded, 0.0);
        continue;
      }
      const double rescale = absorb(shape, x, lo, hi, padded, running[static_cast<std::size_t>(q)]);
      if (rescale != 1.0) outputs.col(q) *= rescale;
    }
    outputs.noalias() += transposed(stream.values, start, tokens) * tile;
  }

  for (Index q = 0; q < count; ++q) {
    const auto place = static_cast<std::size_t>(first_place + q);
    const Running& run = running[static_cast<std::size_t>(q)];
    Eigen::Map<Eigen::VectorXd>(out.outputs.data() + (first_place + q) * shape.dv, shape.dv) =
        outputs.col(q) / run.sum;
    out.max_logit[place] = run.max_logit;
    out.normalizer[place] = run.sum;
    out.squared_sum[place] = run.squared_sum;
  }
}

}  // namespace

ExactRows exact_attention(const Stream& stream, std::vector<Index> rows) {
  ExactRows out;
  out.rows = std::move(rows);
  const Index places = static_cast<Index>(out.rows.size()) * stream.shape.group;
  out.outputs.resize(static_cast<std::size_t>(places * stream.shape.dv));
  out.max_logit.resize(static_cast<std::size_t>(places));
  out.normalizer.resize(static_cast<std::size_t>(places));
  out.squared_sum.resize(static_cast<std::size_t>(places));
  const Index blocks = (places + kQueryBlock - 1) / kQueryBlock;
  parallel_for(blocks, [&](Index b) {
    const Index first = (blocks - 1 - b) * kQueryBlock;  // the longest rows first
    attend_block(stream, first, std::min(first + kQueryBlock, places), out);
  });
  return out;
}

}  // namespace kvbench::cpu
