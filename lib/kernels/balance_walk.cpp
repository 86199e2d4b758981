#include "kernels/balance_walk.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/canonical.hpp"
#include "core/stream.hpp"
#include "kernels/logit_tile.hpp"

namespace kvbench {
namespace {

constexpr Index kRowsAtOnce = 48;

// Inner products of rows [first, last) with all rows before `last`, by tiles: [rows, tiles * 256].
class GramRows {
 public:
  explicit GramRows(ConstMatrix points) : points_(points) {
    for (Index start = 0; start < points.rows; start += kTileTokens) {
      tiles_.emplace_back(points, start);
    }
    plain_.scale = 1.0;
  }

  void compute(Index first, Index last, std::vector<double>& out, Index stride) const {
    std::vector<const double*> rows;
    for (Index j = first; j < last; ++j) rows.push_back(points_.row(j));
    std::vector<double> tile_out(rows.size() * static_cast<std::size_t>(kTileTokens));
    for (std::size_t t = 0; t < tiles_.size() && tiles_[t].first() < last; ++t) {
      tiles_[t].logits(plain_, rows, tile_out.data());
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::copy_n(
            tile_out.data() + r * static_cast<std::size_t>(kTileTokens), kTileTokens,
            out.data() + static_cast<Index>(r) * stride + static_cast<Index>(t) * kTileTokens);
      }
    }
  }

 private:
  ConstMatrix points_;
  StreamShape plain_;
  std::vector<KeyTile> tiles_;
};

// sum over i < count of eta_i exp(a_i - shift) b_i, eight lanes from index 0 up; eta is 0 beyond.
double signed_sum(const double* exponents, const double* factors, const double* eta, Index count,
                  double shift) {
  Lanes sum = Lanes::all(0.0);
  for (Index i = 0; i < count; i += Lanes::kCount) {
    const Lanes e = canonical_exp(Lanes::load(exponents + i) - Lanes::all(shift));
    sum = Lanes::fma(e * Lanes::load(factors + i), Lanes::load(eta + i), sum);
  }
  return sum.sum();
}

}  // namespace

WalkResult balance_walk(const WalkRule& rule, ConstMatrix keys, ConstMatrix values,
                        const std::vector<double>& uniforms) {
  const Index m = keys.rows;
  const Index padded = (m + kTileTokens - 1) / kTileTokens * kTileTokens;
  WalkResult result;
  result.signs.resize(static_cast<std::size_t>(m));
  const GramRows key_products(keys);
  const GramRows value_products(values);
  const bool has_values = values.rows > 0;
  const auto block =
      static_cast<std::size_t>(std::min(kRowsAtOnce, std::max<Index>(m, 1)) * padded);
  std::vector<double> exponents(block);
  std::vector<double> factors(block);
  std::vector<double> eta(static_cast<std::size_t>(padded), 0.0);

  for (Index first = 0; first < m; first += kRowsAtOnce) {
    const Index last = std::min(first + kRowsAtOnce, m);
    key_products.compute(first, last, exponents, padded);
    if (has_values) value_products.compute(first, last, factors, padded);
    for (Index j = first; j < last; ++j) {
      double* a = exponents.data() + (j - first) * padded;
      double* b = factors.data() + (j - first) * padded;
      double largest = -std::numeric_limits<double>::infinity();
      for (Index i = 0; i < j; ++i) {
        a[i] = std::min(std::fma(rule.beta, a[i], -rule.offset), rule.cap);
        largest = std::max(largest, a[i]);
        b[i] = has_values ? std::fma(b[i], rule.value_scale, rule.value_offset) : 1.0;
      }
      for (Index i = j; i < std::min(padded, (j + Lanes::kCount)); ++i) {
        a[i] = largest;
        b[i] = 0.0;
      }
      // The shift keeps exp from overflowing; where even the scaled sum is beyond any p, its sign
      // is all that matters.
      double drift = 0.0;
      if (j > 0 && std::isfinite(largest)) {
        const double y = signed_sum(a, b, eta.data(), j, largest);
        drift = rule.gain * y * canonical_exp(std::clamp(largest, -708.0, 700.0));
      }
      const double wanted = 0.5 - drift;
      const double p = std::clamp(wanted, 0.0, 1.0);
      const bool forced = j == 0 && rule.first_is_plus;
      const bool plus = forced || uniforms[static_cast<std::size_t>(j)] < p;
      result.signs[static_cast<std::size_t>(j)] = plus ? 1 : -1;
      eta[static_cast<std::size_t>(j)] = plus ? 1.0 : -1.0;
      if (forced) continue;
      if (wanted < 0.0 || wanted > 1.0) ++result.clamped;
      result.max_abs_p_minus_half = std::max(result.max_abs_p_minus_half, std::abs(p - 0.5));
      ++result.histogram[static_cast<std::size_t>(std::min(19.0, p * 20.0))];
    }
  }
  return result;
}

}  // namespace kvbench
