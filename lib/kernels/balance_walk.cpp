#include "kernels/balance_walk.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/stream.hpp"
#include "kernels/cpu_kernels.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/aligned.hpp"
#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"
#include "system/parallel.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

constexpr Index kRowsAtOnce = 24;

Index whole_lanes(Index count) {
  return (count + Lanes::kCount - 1) / Lanes::kCount * Lanes::kCount;
}

// Inner products of rows [first, last) with all rows before `last`.
class GramRows {
 public:
  explicit GramRows(ConstMatrix points) : points_(points), packed_(points, 0, points.rows) {
    plain_.scale = 1.0;
  }

  // Columns from `last` on, up to a whole step, are unused.
  void compute(Index first, Index last, AlignedDoubles& out, Index stride) const {
    std::vector<const double*> rows;
    for (Index j = first; j < last; ++j) rows.push_back(points_.row(j));
    packed_.logits(plain_, rows, 0, PackedKeys::whole_steps(last), out.data(), stride);
  }

 private:
  ConstMatrix points_;
  PackedKeys packed_;
  StreamShape plain_;
};

// Rows of K / scale, a block of them at a time.
class WalkRows {
 public:
  WalkRows(const WalkKernel& kernel, ConstMatrix keys, ConstMatrix values)
      : kernel_(kernel),
        has_values_(values.rows > 0),
        padded_(PackedKeys::whole_steps(keys.rows)),
        key_products_(keys),
        value_products_(values),
        exponents_(kRowsAtOnce * padded_),
        factors_(has_values_ ? exponents_.size() : 0) {}

  // Calls visit(j, row, scale) for j in [first, last), at most kRowsAtOnce of them; row holds
  // K_ij / scale for i < j, then zeros up to a multiple of eight.
  template <class Visit>
  void visit(Index first, Index last, const Visit& visit) {
    key_products_.compute(first, last, exponents_, padded_);
    if (has_values_) value_products_.compute(first, last, factors_, padded_);
    for (Index j = first; j < last; ++j) {
      double* row = exponents_.data() + (j - first) * padded_;
      const double* factors = factors_.data() + (has_values_ ? (j - first) * padded_ : 0);
      const double scale = finish(row, factors, j);
      visit(j, row, scale);
    }
  }

 private:
  double finish(double* row, const double* factors, Index j) const {
    const Index end = whole_lanes(j);
    const double largest = exponents(row, j);
    if (!std::isfinite(largest)) {
      std::fill(row, row + end, 0.0);
      return 0.0;
    }
    for (Index i = 0; i < end; i += Lanes::kCount) {
      Lanes x = canonical_exp(Lanes::load(row + i) - Lanes::all(largest));
      if (has_values_) {
        x = x * Lanes::fma(Lanes::load(factors + i), Lanes::all(kernel_.value_scale),
                           Lanes::all(kernel_.value_offset));
      }
      x.store(row + i);
    }
    std::fill(row + j, row + end, 0.0);
    // Where even the scaled sum is beyond any p, its sign is all that matters.
    return canonical_exp(std::clamp(largest, -708.0, 700.0));
  }

  // Inner products before j to exponents, -infinity from j up to a multiple of eight; the largest.
  double exponents(double* row, Index j) const {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    Lanes largest = Lanes::all(kNever);
    const Index end = whole_lanes(j);
    for (Index i = 0; i < end; i += Lanes::kCount) {
      const Lanes x =
          Lanes::fma(Lanes::all(kernel_.beta), Lanes::load(row + i), Lanes::all(-kernel_.offset));
      Lanes::min(Lanes::all(kernel_.cap), x).store(row + i);
      if (i + Lanes::kCount > j) std::fill(row + j, row + end, kNever);
      largest = Lanes::max(Lanes::load(row + i), largest);
    }
    return largest.largest();
  }

  const WalkKernel kernel_;
  const bool has_values_;
  const Index padded_;
  const GramRows key_products_;
  const GramRows value_products_;
  AlignedDoubles exponents_;
  AlignedDoubles factors_;
};

class Walk {
 public:
  Walk(const WalkRule& rule, Index size) : rule_(rule), eta_(whole_lanes(size), 0.0) {
    result_.signs.reserve(size);
  }

  void step(Index j, const double* row, double scale, double uniform) {
    Lanes sum = Lanes::all(0.0);
    for (Index i = 0; i < j; i += Lanes::kCount) {
      sum = Lanes::fma(Lanes::load(row + i), Lanes::load(eta_.data() + i), sum);
    }
    const double wanted = 0.5 - rule_.gain * sum.sum() * scale;
    eta_[j] = result_.draw(rule_, wanted, uniform);
  }

  WalkResult result() && { return std::move(result_); }

 private:
  const WalkRule rule_;
  std::vector<double> eta_;
  WalkResult result_;
};

template <class Visit>
void for_each_row(const WalkKernel& kernel, ConstMatrix keys, ConstMatrix values,
                  const Visit& visit) {
  if (keys.rows == 0) return;
  WalkRows rows(kernel, keys, values);
  for (Index first = 0; first < keys.rows; first += kRowsAtOnce) {
    throw_if_stopped();
    rows.visit(first, std::min(first + kRowsAtOnce, keys.rows), visit);
  }
}

class ResidentMatrices final : public WalkMatrices {
 public:
  std::vector<std::optional<WalkMatrix>> of;
};

}  // namespace

WalkMatrix::WalkMatrix(const WalkKernel& kernel, ConstMatrix keys, ConstMatrix values) {
  starts_.reserve(keys.rows);
  scale_.reserve(keys.rows);
  rows_.reserve(static_cast<std::size_t>(WalkMatrices::bytes(keys.rows) / sizeof(double)));
  for_each_row(kernel, keys, values, [&](Index j, const double* row, double scale) {
    starts_.push_back(rows_.size());
    scale_.push_back(scale);
    rows_.insert(rows_.end(), row, row + whole_lanes(j));
  });
}

double walk_bytes(Index m, Index d, Index dv) {
  return 8.0 * (m * (2 * (d + dv) + 2 * kRowsAtOnce + 4));
}

WalkResult balance_walk(const WalkRule& rule, const WalkMatrix& matrix,
                        const std::vector<double>& uniforms) {
  Walk walk(rule, matrix.size());
  for (Index j = 0; j < matrix.size(); ++j) {
    walk.step(j, matrix.row(j), matrix.scale(j), uniforms[j]);
  }
  return std::move(walk).result();
}

WalkResult balance_walk(const WalkRule& rule, const WalkKernel& kernel, ConstMatrix keys,
                        ConstMatrix values, const std::vector<double>& uniforms) {
  Walk walk(rule, keys.rows);
  for_each_row(kernel, keys, values, [&](Index j, const double* row, double scale) {
    walk.step(j, row, scale, uniforms[j]);
  });
  return std::move(walk).result();
}

std::shared_ptr<const WalkMatrices> CpuKernels::walk_matrices(const std::vector<Index>& sizes,
                                                              const WalkSource& tokens) const {
  auto matrices = std::make_shared<ResidentMatrices>();
  matrices->of.resize(sizes.size());
  parallel_for(std::ssize(sizes), [&](Index w) {
    const WalkTokens seen = tokens(w);
    matrices->of[w].emplace(seen.kernel, seen.keys.view, seen.values.view);
  });
  return matrices;
}

std::vector<WalkResult> CpuKernels::balance_walks(
    const WalkRule& rule, const WalkMatrices& matrices,
    const std::vector<std::vector<double>>& uniforms) const {
  const auto& kept = dynamic_cast<const ResidentMatrices&>(matrices).of;
  std::vector<WalkResult> walks(uniforms.size());
  parallel_for(std::ssize(uniforms), [&](Index each) {
    const std::size_t w = each;
    walks[w] = balance_walk(rule, *kept[w], uniforms[w]);
  });
  return walks;
}

std::vector<WalkResult> CpuKernels::balance_walks(
    const WalkRule& rule, const WalkSource& tokens,
    const std::vector<std::vector<double>>& uniforms) const {
  std::vector<WalkResult> walks(uniforms.size());
  parallel_for(std::ssize(uniforms), [&](Index each) {
    const std::size_t w = each;
    const WalkTokens seen = tokens(each);
    walks[w] = balance_walk(rule, seen.kernel, seen.keys.view, seen.values.view, uniforms[w]);
  });
  return walks;
}

}  // namespace kvbench
