#include "sketch/estimator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/canonical.hpp"
#include "sketch/cache_positions.hpp"

namespace kvbench {
namespace {

// Below this the shared shift may have cost the sketch's own rows their digits.
constexpr double kSafeDenominator = 1e-250;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// Calls visit(token) for the tokens of `groups`, ascending.
template <class Visit>
void for_each_token(const std::vector<std::int32_t>& groups, const Visit& visit) {
  for (const std::int32_t g : groups) {
    const auto first = static_cast<std::size_t>(g) * Lanes::kCount;
    for (std::size_t j = first; j < first + Lanes::kCount; ++j) visit(j);
  }
}

}  // namespace

Lanes Estimator::Exponentials::group(Index g) const {
  const Index start = g * Lanes::kCount;
  const Index end = start + Lanes::kCount;
  if (start >= first && end <= last) return Lanes::load(e + start);
  alignas(64) double some[Lanes::kCount] = {};
  for (Index j = std::max(first, start); j < std::min(last, end); ++j) some[j - start] = e[j];
  return Lanes::load(some);
}

Estimator::Estimator(const Stream& stream, const Kernels& kernels)
    : stream_(stream),
      weights_(stream.shape.tokens),
      values_(kernels.weighted_values(stream.values)) {}

void Estimator::take(const Sketch& sketch) {
  sketch_ = &sketch;
  weights_.take(sketch);
  if (!sketch.cache_positions) return;
  held_.clear();
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) held_.push_back(row.token);
  }
}

Estimator::Sums Estimator::sums(const Exponentials& e) const {
  Lanes den = Lanes::all(0.0);
  Lanes num = den;
  Lanes log = den;
  Lanes held = den;
  for (const std::int32_t g : weights_.groups()) {
    const Index at = Index{g} * Lanes::kCount;
    const Lanes some = e.group(g);
    den = Lanes::fma(Lanes::load(weights_.den() + at), some, den);
    num = Lanes::fma(Lanes::load(weights_.num() + at), some, num);
    log = Lanes::fma(Lanes::load(weights_.log() + at), some, log);
    held = Lanes::fma(Lanes::load(weights_.held() + at), some, held);
  }
  return {den.sum(), num.sum(), log.sum(), held.sum()};
}

Estimator::Exponentials Estimator::of_row(const QueryRow& query) const {
  return {query.e, stream_.shape.first_visible(query.row), query.row + 1, query.max_logit};
}

template <class Counts>
Estimator::Exponentials Estimator::own_exponentials(const double* x, double least,
                                                    const Counts& counts) {
  double shift = least;
  for_each_token(weights_.groups(), [&](std::size_t j) {
    if (counts(j)) shift = std::max(shift, x[j]);
  });
  own_.assign(static_cast<std::size_t>(stream_.shape.tokens), 0.0);
  if (std::isfinite(shift)) {
    for_each_token(weights_.groups(), [&](std::size_t j) {
      if (counts(j)) own_[j] = canonical_exp(x[j] - shift);
    });
  }
  return {own_.data(), 0, stream_.shape.tokens, shift};
}

Estimator::Exponentials Estimator::exponentials(const QueryRow& query) {
  const auto weighs = [&](std::size_t j) {
    return weights_.num()[j] != 0.0 || weights_.den()[j] != 0.0;
  };
  if (sketch_->cache_positions) {
    cache_position_logits(stream_, query.row, query.head, held_, turned_);
    turned_of_.resize(static_cast<std::size_t>(stream_.shape.tokens));
    for (std::size_t p = 0; p < held_.size(); ++p) {
      turned_of_[static_cast<std::size_t>(held_[p])] = turned_[p];
    }
    return own_exponentials(turned_of_.data(), kNothing, weighs);
  }
  const Exponentials shared = of_row(query);
  // An exact sum holds the row's largest logit.
  if (sketch_->exact_numerator || sketch_->exact_denominator) return shared;
  for (const std::int32_t g : weights_.groups()) {
    const Lanes w = Lanes::load(weights_.den() + Index{g} * Lanes::kCount);
    if ((w * shared.group(g)).largest() >= kSafeDenominator) return shared;
  }
  double least = kNothing;
  for (const TokenWeights::Merged& row : weights_.merged()) {
    if (row.w_num != 0.0) least = std::max(least, query.x[row.token]);
  }
  const Exponentials own = own_exponentials(query.x, least, weighs);
  return std::isfinite(own.shift) ? own : shared;
}

std::optional<double> Estimator::divergence(const QueryRow& query, Exponentials e, Sums sum) {
  const double* x = sketch_->cache_positions ? turned_of_.data() : query.x;
  if (sum.den < kSafeDenominator) {  // the shift is far above these rows: one of their own
    e = own_exponentials(x, kNothing, [&](std::size_t j) { return weights_.den()[j] != 0.0; });
    if (!std::isfinite(e.shift)) return std::nullopt;
    sum = sums(e);
  }
  double turn = 0.0;  // sum p^ (x' - x): what attending at other positions adds
  if (sketch_->cache_positions) {
    for (const std::int32_t token : held_) {
      const auto j = static_cast<std::size_t>(token);
      turn += weights_.den()[j] * e.e[j] / sum.den * (turned_of_[j] - query.x[j]);
    }
  }
  const double log_ratio =
      std::log(sum.den) + e.shift - query.exact_max - std::log(query.exact_normalizer);
  return std::max(0.0, sum.log / sum.den - log_ratio + turn);
}

void Estimator::ask(const QueryRow& query) {
  const Exponentials e = exponentials(query);
  const double shift = e.shift;
  const Sums sum = sums(e);
  double numerator_sum = sum.num;
  const bool rows_are_tokens = weights_.merged().empty();
  if (sketch_->exact_numerator) {
    values_->ask({});
  } else {
    double* coefficient = values_->ask(weights_.weighted());
    for (const std::int32_t j : weights_.weighted()) *coefficient++ = weights_.num()[j] * e.e[j];
  }

  Question& question = questions_.emplace_back();
  Estimate& out = question.estimate;
  if (!rows_are_tokens) out.numerator.assign(static_cast<std::size_t>(stream_.shape.dv), 0.0);
  for (const TokenWeights::Merged& row : weights_.merged()) {
    const double c = row.w_num * canonical_exp(query.x[row.token] - shift);
    numerator_sum += c;
    const std::vector<double>& value = sketch_->merged_values[static_cast<std::size_t>(row.value)];
    for (std::size_t k = 0; k < value.size(); ++k) out.numerator[k] += c * value[k];
  }

  const double z = query.exact_normalizer;
  question.exact_output = query.exact_output;
  question.exact_normalizer = z;
  question.exact_numerator = sketch_->exact_numerator;
  question.to_exact = std::exp(shift - query.exact_max);
  question.from_exact = std::exp(query.exact_max - shift);
  out.rows_are_tokens = rows_are_tokens;
  if (rows_are_tokens) out.kl_divergence = divergence(query, e, sum);
  if (sketch_->exact_numerator) {
    out.kept_mass = 1.0;
    numerator_sum = z * question.from_exact;
  } else if (rows_are_tokens) {
    // Of the exact distribution, whatever positions the sketch attends at.
    const Exponentials exact = of_row(query);
    out.kept_mass =
        (exact.e == e.e ? sum : sums(exact)).held * std::exp(query.max_logit - query.exact_max) / z;
  }
  question.tau = sketch_->exact_denominator ? z * question.from_exact : sum.den;
  out.empty_denominator = !(question.tau > 0.0);
  out.normalizer = question.tau * question.to_exact;
  out.numerator_mass = numerator_sum * question.to_exact / z;
  out.denominator_mass = out.normalizer / z;
}

void Estimator::answer(const std::function<void(const Estimate&)>& visit) {
  const auto dv = static_cast<std::size_t>(stream_.shape.dv);
  values_->sums(numerators_);
  const double* sums = numerators_.data();
  for (Question& question : questions_) {
    Estimate& out = question.estimate;
    out.numerator.resize(dv, 0.0);
    out.answer.assign(dv, 0.0);
    for (std::size_t k = 0; k < dv; ++k) {
      out.numerator[k] =
          question.exact_numerator
              ? question.exact_output[k] * (question.exact_normalizer * question.from_exact)
              : out.numerator[k] + sums[k];
      if (!out.empty_denominator) out.answer[k] = out.numerator[k] / question.tau;
      out.numerator[k] *= question.to_exact;
    }
    visit(out);
    sums += dv;
  }
  questions_.clear();
}

}  // namespace kvbench
