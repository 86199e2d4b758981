// performer: positive random features of the softmax kernel hold the middle of the prompt in a
// state of fixed size, besides exact sinks and recent tokens. When streaming, they also hold tokens
// that leave the recent ones later.
//
// Source: Performer's FAVOR+ (positive orthogonal random features), as released.
//   m -> features, omega_r -> key of feature row r, times 1 / sqrt(scale), phi_r(k) =
//   exp(<omega_r, sqrt(scale) k> - scale |k|^2 / 2) -> its logarithm, S_r = sum phi_r(k_j) v_j and
//   t_r = sum phi_r(k_j) -> a row's value S_r / t_r and its weight t_r
// Departures: exact tokens besides the features, under one denominator; nothing is added to
// features (the release adds 1e-4 after it subtracted a maximum of keys, and of each query, which
// biases both sums and on the side of the queries is not a row); features are stored over e^c, c
// the largest logarithm so far, one number of a head. A soft-cap of the layer changes the logits of
// tokens alone: features stand for the exponential without it. Normal numbers are quantiles of
// uniform ones, an orthogonal block is Q of the QR decomposition of a d x d matrix of them with
// diag R > 0, its rows times norms of independent normal vectors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "algorithms/mechanisms/compress_once.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/lanes.hpp"
#include "numerics/random_matrix.hpp"
#include "numerics/unrolled.hpp"

namespace kvbench::methods::performer {
namespace {

enum class Draw { kOrthogonal, kIndependent };

struct Parameters {
  Index features = 256;
  TokenCount sinks = 4;
  TokenCount recent = 64;
  Draw draw = Draw::kOrthogonal;
  bool streaming = false;
};

using Vector = std::vector<double>;

constexpr Index kTokensAtOnce = 24;

// sums[k] += phi[t stride] values(t, k), t in [first, last) in order.
void add_values(const double* phi, Index stride, ConstMatrix values, Index first, Index last,
                double* sums) {
  constexpr int kChains = 8;
  const auto add = [&](Index column, auto chains) {
    Lanes part[chains];
    unrolled<chains>([&](auto c) { part[c] = Lanes::load(sums + column + c * Lanes::kCount); });
    for (Index t = first; t < last; ++t) {
      const Lanes factor = Lanes::all(phi[(t - first) * stride]);
      const double* value = values.row(t) + column;
      unrolled<chains>([&](auto c) {
        part[c] = Lanes::fma(factor, Lanes::load(value + c * Lanes::kCount), part[c]);
      });
    }
    unrolled<chains>([&](auto c) { part[c].store(sums + column + c * Lanes::kCount); });
  };
  Index k = 0;
  for (; k + kChains * Lanes::kCount <= values.cols; k += kChains * Lanes::kCount) {
    add(k, std::integral_constant<int, kChains>());
  }
  for (; k + Lanes::kCount <= values.cols; k += Lanes::kCount) {
    add(k, std::integral_constant<int, 1>());
  }
  for (; k < values.cols; ++k) {
    for (Index t = first; t < last; ++t) {
      sums[k] = std::fma(phi[(t - first) * stride], values(t, k), sums[k]);
    }
  }
}

class Performer final : public CompressOnce {
 public:
  Performer(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), p.recent.of(context.prompt)), p_(p) {}

  void extend(Index first, Index last) override {
    if (last <= context_.prompt) return;
    sketch_.add_exact(first, last);
    if (!p_.streaming) return;
    const Index from = std::max(next_, p_.sinks.of(context_.prompt));
    const Index to = last - p_.recent.of(context_.prompt);
    if (to <= from) return;
    // Tokens from there on are the sketch's last rows.
    sketch_.erase(sketch_.size() - (last - from), sketch_.size() - (last - to));
    absorb(from, to);
  }

  Derived derived() const override {
    return {{"sinks", prompt_.sinks}, {"recent", prompt_.recent}, {"absorbed", absorbed_}};
  }

 protected:
  void compress_middle(PromptRange middle) override { absorb(middle.first, middle.last); }

 private:
  // omega_r, over sqrt(scale) in the sketch.
  void draw_features() {
    const StreamShape& shape = context_.stream.shape;
    const CounterRng draw(context_.seed, context_.stream.id.hash(), "performer/projection");
    const CounterRng norms(context_.seed, context_.stream.id.hash(), "performer/norm");
    Vector directions = p_.draw == Draw::kOrthogonal
                            ? stacked_haar_matrices(draw, p_.features, shape.d)
                            : normal_matrix(draw, p_.features, shape.d);
    for (Index r = 0; r < p_.features; ++r) {
      const auto first = directions.begin() + r * shape.d;
      Vector omega(first, first + shape.d);
      if (p_.draw == Draw::kOrthogonal) {
        const Vector length = normal_vector(norms, shape.d, static_cast<std::uint32_t>(r));
        const double norm = std::sqrt(canonical_dot(length.data(), length.data(), shape.d));
        for (double& x : omega) x *= norm;
      }
      std::copy(omega.begin(), omega.end(), first);
      for (double& x : omega) x /= std::sqrt(shape.scale);
      sketch_.own_keys.push_back(std::move(omega));
    }
    omegas_.emplace(ConstMatrix(directions.data(), p_.features, shape.d), 0, p_.features);
    const std::size_t features = p_.features;
    const std::size_t dv = shape.dv;
    sums_.assign(features, 0.0);
    value_sums_.assign(features * dv, 0.0);
    logs_.resize(kTokensAtOnce * omegas_->padded());
    sketch_.own_values.assign(features, Vector(dv, 0.0));
    sketch_.bookkeeping = 1;  // c
    sketch_.lookup.shared_numbers = p_.features * shape.d;
  }

  // Tokens [first, last) into the sums.
  void absorb(Index first, Index last) {
    if (!omegas_) draw_features();
    for (Index from = first; from < last; from += kTokensAtOnce) {
      absorb_block(from, std::min(last, from + kTokensAtOnce));
    }
    next_ = last;
    absorbed_ += last - first;
    place_features();
  }

  void absorb_block(Index first, Index last) {
    const StreamShape& shape = context_.stream.shape;
    StreamShape products;  // <omega, k> alone
    std::vector<const double*> keys;
    for (Index j = first; j < last; ++j) keys.push_back(context_.stream.keys.row(j));
    const Index stride = omegas_->padded();
    omegas_->logits(products, keys, 0, stride, logs_.data(), stride);
    Index from = first;  // the tokens before it are in the sums
    for (Index j = first; j < last; ++j) {
      const double* key = context_.stream.keys.row(j);
      double* logs = logs_.data() + (j - first) * stride;
      const double half = 0.5 * shape.scale * canonical_dot(key, key, shape.d);
      const double largest = logarithms(logs, half);
      if (!(largest > common_)) continue;
      add(from, j, logs_.data() + (from - first) * stride, stride);
      raise_to(largest);
      from = j;
    }
    add(from, last, logs_.data() + (from - first) * stride, stride);
  }

  // Logarithms of the features for one token, in place of the products; returns the largest.
  double logarithms(double* x, double half) const {
    const double root = std::sqrt(context_.stream.shape.scale);
    Lanes most = Lanes::all(-std::numeric_limits<double>::infinity());
    Index r = 0;
    for (; r + Lanes::kCount <= p_.features; r += Lanes::kCount) {
      const Lanes logs = Lanes::fma(Lanes::all(root), Lanes::load(x + r), Lanes::all(-half));
      logs.store(x + r);
      most = Lanes::max(logs, most);
    }
    double largest = most.largest();
    for (; r < p_.features; ++r) {
      x[r] = std::fma(root, x[r], -half);
      largest = std::max(largest, x[r]);
    }
    return largest;
  }

  // Tokens [first, last) by the logarithms of their features, of which `common_` is not below any.
  void add(Index first, Index last, double* logs, Index stride) {
    if (first == last) return;
    for (Index j = first; j < last; ++j) {
      double* phi = logs + (j - first) * stride;
      for (Index r = 0; r < stride; r += Lanes::kCount) {
        canonical_exp(Lanes::load(phi + r) - Lanes::all(common_)).store(phi + r);
      }
      for (Index r = 0; r < p_.features; ++r) sums_[r] += phi[r];
    }
    const Index dv = context_.stream.shape.dv;
    for (Index r = 0; r < p_.features; ++r) {
      add_values(logs + r, stride, context_.stream.values, first, last,
                 value_sums_.data() + r * dv);
    }
  }

  void raise_to(double common) {
    const double factor = canonical_exp(common_ - common);
    common_ = common;
    for (double& x : sums_) x *= factor;
    for (double& x : value_sums_) x *= factor;
  }

  // The sketch's first rows, as the sums are now.
  void place_features() {
    const Index count = p_.features;
    const bool are_new = sketch_.size() == 0 || !sketch_[0].feature;
    const std::vector<SketchRow> others = are_new ? sketch_.rows() : std::vector<SketchRow>();
    if (are_new) sketch_.clear();
    for (Index r = 0; r < count; ++r) {
      const std::size_t i = r;
      SketchRow row;
      row.feature = true;
      row.own_key = row.own_value = static_cast<std::int32_t>(r);
      row.w_num = row.w_den = sums_[i];
      row.keeps_key = row.counts_as_token = false;  // the seed gives the key
      row.weight_numbers = 1;
      Vector& value = sketch_.own_values[i];
      for (std::size_t k = 0; k < value.size(); ++k) {
        value[k] = sums_[i] > 0.0 ? value_sums_[i * value.size() + k] / sums_[i] : 0.0;
      }
      if (are_new) {
        sketch_.add(row);
      } else {
        sketch_.replace(r, row);
      }
    }
    for (const SketchRow& row : others) sketch_.add(row);
    sketch_.feature_shift = common_ - canonical_log(count);
  }

  Parameters p_;
  std::optional<PackedKeys> omegas_;  // none before they are drawn
  Vector sums_;                       // t_r over e^common
  Vector value_sums_;                 // [features, dv], S_r over e^common
  Vector logs_;                       // logarithms of a block of tokens by the features
  double common_ = -std::numeric_limits<double>::infinity();
  Index next_ = 0;  // the oldest token that is not absorbed, sinks aside
  Index absorbed_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "performer";
  d.title = "positive random features, and exact sinks and recent tokens";
  d.source = "Performer, FAVOR+";
  d.for_less_memory =
      "performer keeps its features, however many tokens there are; for less "
      "memory lower features";
  d.limits.alibi = "performer approximates a kernel of inner products alone";
  d.derived = {sinks_key(), recent_key(), {"absorbed", "tokens that the features stand for"}};
  using P = Parameters;
  d.parameters = {
      field("features", &P::features, "number of random features").at_least(1).at_most(1e6),
      sinks_field(&P::sinks),
      recent_field(&P::recent, "last tokens, of the prompt or, streaming, of every row; kept"),
      field("draw", &P::draw, {{"orthogonal", Draw::kOrthogonal}, {"iid", Draw::kIndependent}},
            "directions of the features: orthogonal in blocks of d, or independent"),
      field("streaming", &P::streaming,
            "tokens that leave the recent ones while decoding are absorbed too")};
  d.randomised = [](const Parameters&) { return true; };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("performer", shape);
  };
  d.not_rows = [](const Parameters&) -> std::optional<std::string> {
    return "its features are rows without a key that a logit could be made of";
  };
  d.not_stored = [](const Parameters&) -> std::optional<std::string> {
    return "its random features are not keys that a codec could write";
  };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index) {
    const double d = shape.d;
    const double dv = shape.dv;
    const double features = p.features;
    // A feature has its key twice, its sums twice, and logarithms for some tokens.
    const double of_feature =
        8.0 * (2.0 * (d + dv) + kTokensAtOnce + 1.0) + 2.0 * kVectorBytes + kSketchRowBytes;
    return CellMemory{.held = features * of_feature, .working = 8.0 * d * (features + 4.0 * d)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Performer>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::performer
