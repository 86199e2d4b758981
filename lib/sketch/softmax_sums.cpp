#include "sketch/softmax_sums.hpp"

#include <algorithm>
#include <cmath>

#include "numerics/canonical.hpp"

namespace kvbench {
namespace {

// Calls visit(token) for the tokens of `groups` that count, ascending.
template <class Counts, class Visit>
void for_each_token(const std::vector<std::int32_t>& groups, const Counts& counts,
                    const Visit& visit) {
  for (const std::int32_t g : groups) {
    const auto first = static_cast<std::size_t>(g) * Lanes::kCount;
    for (std::size_t j = first; j < first + Lanes::kCount; ++j) {
      if (counts(j)) visit(j);
    }
  }
}

}  // namespace

Lanes Exponentials::group_at_end(Index start) const {
  const Index end = start + Lanes::kCount;
  alignas(64) double some[Lanes::kCount] = {};
  for (Index j = std::max(first, start); j < std::min(last, end); ++j) some[j - start] = e[j];
  return Lanes::load(some);
}

TokenSums softmax_sums(const WeightsByToken& weights, const Exponentials& e) {
  Lanes den = Lanes::all(0.0);
  Lanes num = den;
  Lanes log = den;
  Lanes kept = den;
  for (const std::int32_t g : weights.groups()) {
    const Index at = Index{g} * Lanes::kCount;
    const Lanes some = e.group(g);
    den = Lanes::fma(Lanes::load(weights.den() + at), some, den);
    num = Lanes::fma(Lanes::load(weights.num() + at), some, num);
    log = Lanes::fma(Lanes::load(weights.log() + at), some, log);
    kept = Lanes::fma(Lanes::load(weights.kept() + at), some, kept);
  }
  return {weights.factor() * num.sum(), den.sum(), log.sum(), kept.sum()};
}

double kept_sum(const WeightsByToken& weights, const Exponentials& e) {
  Lanes kept = Lanes::all(0.0);
  for (const std::int32_t g : weights.groups()) {
    kept = Lanes::fma(Lanes::load(weights.kept() + Index{g} * Lanes::kCount), e.group(g), kept);
  }
  return kept.sum();
}

void add_sink(double logit, double shift, TokenSums& sums) {
  const double e = canonical_exp(logit - shift);
  sums.num += e;
  sums.den += e;
  sums.kept += e;
}

bool is_safe(const WeightsByToken& weights, const Exponentials& e) {
  return std::any_of(weights.groups().begin(), weights.groups().end(), [&](std::int32_t g) {
    const Lanes w = Lanes::load(weights.den() + Index{g} * Lanes::kCount);
    return (w * e.group(g)).largest() >= kSafeDenominator;
  });
}

Exponentials own_exponentials(const WeightsByToken& weights, WeighIn which, const double* x,
                              Index tokens, double least, std::vector<double>& room) {
  const bool either = which == WeighIn::kEitherSum;
  const auto counts = [&](std::size_t j) {
    return weights.den()[j] != 0.0 || (either && weights.num()[j] != 0.0);
  };
  double shift = least;
  for_each_token(weights.groups(), counts, [&](std::size_t j) { shift = std::max(shift, x[j]); });
  room.assign(tokens, 0.0);
  if (std::isfinite(shift)) {
    for_each_token(weights.groups(), counts,
                   [&](std::size_t j) { room[j] = canonical_exp(x[j] - shift); });
  }
  return {room.data(), 0, tokens, shift};
}

std::optional<double> kl_divergence(const ExactAnswer& exact, double shift, const TokenSums& sums,
                                    double position_term) {
  // -inf, or NaN where it met an exponential of 0.
  if (std::isnan(sums.log) || (std::isinf(sums.log) && sums.log < 0.0)) return std::nullopt;
  const double log_ratio =
      std::log(sums.den) + (shift - exact.largest_logit) - std::log(exact.normalizer);
  return std::max(0.0, sums.log / sums.den - log_ratio + position_term);
}

}  // namespace kvbench
