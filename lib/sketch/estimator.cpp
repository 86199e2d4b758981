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

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  const Index n = static_cast<Index>(a.size());
  Lanes sum = Lanes::all(0.0);
  Index i = 0;
  for (; i + Lanes::kCount <= n; i += Lanes::kCount) {
    sum = Lanes::fma(Lanes::load(a.data() + i), Lanes::load(b.data() + i), sum);
  }
  double total = sum.sum();
  for (; i < n; ++i) {
    total = std::fma(a[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(i)], total);
  }
  return total;
}

// out[k] += sum over entries of c v[k], columns [first, first + Width * 8) held in registers.
template <int Width>
void accumulate_columns(ConstMatrix values, const std::vector<std::int32_t>& tokens,
                        const std::vector<double>& coefficients, Index first, double* out) {
  Lanes sums[Width];
  for (int w = 0; w < Width; ++w) sums[w] = Lanes::load(out + first + w * Lanes::kCount);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (coefficients[i] == 0.0) continue;
    const double* v = values.row(tokens[i]) + first;
    const Lanes c = Lanes::all(coefficients[i]);
    for (int w = 0; w < Width; ++w) {
      sums[w] = Lanes::fma(c, Lanes::load(v + w * Lanes::kCount), sums[w]);
    }
  }
  for (int w = 0; w < Width; ++w) sums[w].store(out + first + w * Lanes::kCount);
}

void accumulate(ConstMatrix values, const std::vector<std::int32_t>& tokens,
                const std::vector<double>& coefficients, std::vector<double>& out) {
  const Index dv = values.cols;
  Index k = 0;
  for (; k + 4 * Lanes::kCount <= dv; k += 4 * Lanes::kCount) {
    accumulate_columns<4>(values, tokens, coefficients, k, out.data());
  }
  for (; k + Lanes::kCount <= dv; k += Lanes::kCount) {
    accumulate_columns<1>(values, tokens, coefficients, k, out.data());
  }
  for (; k < dv; ++k) {
    double sum = out[static_cast<std::size_t>(k)];
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (coefficients[i] != 0.0) sum = std::fma(coefficients[i], values(tokens[i], k), sum);
    }
    out[static_cast<std::size_t>(k)] = sum;
  }
}

}  // namespace

Estimator::Estimator(const Stream& stream)
    : stream_(stream), place_of_(static_cast<std::size_t>(stream.shape.tokens), -1) {}

void Estimator::take(const Sketch& sketch) {
  for (const std::int32_t token : tokens_) place_of_[static_cast<std::size_t>(token)] = -1;
  tokens_.clear();
  w_num_.clear();
  w_den_.clear();
  value_held_.clear();
  merged_.clear();
  sketch_ = &sketch;
  rows_are_tokens_ = true;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token < 0) continue;
    std::int32_t& place = place_of_[static_cast<std::size_t>(row.token)];
    if (place < 0) {
      place = static_cast<std::int32_t>(tokens_.size());
      tokens_.push_back(row.token);
      w_num_.push_back(0.0);
      w_den_.push_back(0.0);
      value_held_.push_back(0);
    }
    const auto at = static_cast<std::size_t>(place);
    w_den_[at] += row.w_den;
    const double w_num = row.scaled ? row.w_num * sketch.numerator_scale : row.w_num;
    if (row.merged_value >= 0) {
      merged_.push_back({row.token, row.merged_value, w_num});
      rows_are_tokens_ = false;
    } else {
      w_num_[at] += w_num;
      if (row.holds_value) value_held_[at] = 1;
    }
  }
  w_log_.resize(w_den_.size());
  for (std::size_t i = 0; i < w_den_.size(); ++i) {
    const double w = w_den_[i];
    w_log_[i] = w > 0.0 && w != 1.0 ? w * std::log(w) : 0.0;
  }
  e_.resize(tokens_.size());
  coefficients_.resize(tokens_.size());
}

double Estimator::shift_for(const QueryRow& query) const {
  // An exact sum holds the row's largest logit.
  if (sketch_->exact_numerator || sketch_->exact_denominator) return query.max_logit;
  double denominator = 0.0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    denominator += w_den_[i] * query.e[tokens_[i]];
    if (denominator >= kSafeDenominator) return query.max_logit;
  }
  double shift = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (w_num_[i] != 0.0 || w_den_[i] != 0.0) shift = std::max(shift, query.x[tokens_[i]]);
  }
  for (const MergedRow& row : merged_) {
    if (row.w_num != 0.0) shift = std::max(shift, query.x[row.token]);
  }
  return std::isfinite(shift) ? shift : query.max_logit;
}

std::optional<double> Estimator::divergence(const QueryRow& query, double shift, double tau) const {
  if (tau < kSafeDenominator) {  // the shift is far above these rows: one of their own
    shift = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (w_den_[i] != 0.0) shift = std::max(shift, query.x[tokens_[i]]);
    }
    if (!std::isfinite(shift)) return std::nullopt;
    std::vector<double> e(tokens_.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (w_den_[i] != 0.0) e[i] = canonical_exp(query.x[tokens_[i]] - shift);
    }
    return divergence_of(query, e, shift);
  }
  return divergence_of(query, e_, shift);
}

double Estimator::divergence_of(const QueryRow& query, const std::vector<double>& e,
                                double shift) const {
  const double tau = dot(w_den_, e);
  double turn = 0.0;  // sum p^ (x' - x): what attending at other positions adds
  if (sketch_->cache_positions) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      turn += w_den_[i] * e[i] / tau * (turned_[i] - query.x[tokens_[i]]);
    }
  }
  const double log_ratio =
      std::log(tau) + shift - query.exact_max - std::log(query.exact_normalizer);
  return std::max(0.0, dot(w_log_, e) / tau - log_ratio + turn);
}

// Fills e_ and returns the shift.
double Estimator::exponentials(const QueryRow& query) {
  if (sketch_->cache_positions) {
    cache_position_logits(stream_, query.row, query.head, tokens_, turned_);
    double shift = -std::numeric_limits<double>::infinity();
    for (const double x : turned_) shift = std::max(shift, x);
    for (std::size_t i = 0; i < tokens_.size(); ++i) e_[i] = canonical_exp(turned_[i] - shift);
    return shift;
  }
  const double shift = shift_for(query);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    e_[i] =
        shift == query.max_logit ? query.e[tokens_[i]] : canonical_exp(query.x[tokens_[i]] - shift);
  }
  return shift;
}

// Of the exact distribution, whatever positions the sketch attends at.
double Estimator::kept_mass(const QueryRow& query, double shift) const {
  const bool own = !sketch_->cache_positions;
  double kept = 0.0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (value_held_[i] != 0) kept += own ? e_[i] : query.e[tokens_[i]];
  }
  return kept * std::exp((own ? shift : query.max_logit) - query.exact_max) /
         query.exact_normalizer;
}

void Estimator::answer(const QueryRow& query, Estimate& out) {
  const auto dv = static_cast<std::size_t>(stream_.shape.dv);
  const double shift = exponentials(query);
  double tau = dot(w_den_, e_);
  double numerator_sum = 0.0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    coefficients_[i] = w_num_[i] * e_[i];
    numerator_sum += coefficients_[i];
  }
  out.numerator.assign(dv, 0.0);
  accumulate(stream_.values, tokens_, coefficients_, out.numerator);
  for (const MergedRow& row : merged_) {
    const double c = row.w_num * canonical_exp(query.x[row.token] - shift);
    numerator_sum += c;
    const std::vector<double>& value = sketch_->merged_values[static_cast<std::size_t>(row.value)];
    for (std::size_t k = 0; k < dv; ++k) out.numerator[k] += c * value[k];
  }

  // From this shift to that of the exact sums.
  const double to_exact = std::exp(shift - query.exact_max);
  const double from_exact = std::exp(query.exact_max - shift);
  const double z = query.exact_normalizer;
  out.rows_are_tokens = rows_are_tokens_;
  out.kl_divergence.reset();
  if (rows_are_tokens_) out.kl_divergence = divergence(query, shift, tau);
  out.kept_mass.reset();
  if (sketch_->exact_numerator) {
    out.kept_mass = 1.0;
  } else if (rows_are_tokens_) {
    out.kept_mass = kept_mass(query, shift);
  }

  if (sketch_->exact_numerator) {
    for (std::size_t k = 0; k < dv; ++k)
      out.numerator[k] = query.exact_output[k] * (z * from_exact);
    numerator_sum = z * from_exact;
  }
  if (sketch_->exact_denominator) tau = z * from_exact;

  out.empty_denominator = !(tau > 0.0);
  out.answer.assign(dv, 0.0);
  if (!out.empty_denominator) {
    for (std::size_t k = 0; k < dv; ++k) out.answer[k] = out.numerator[k] / tau;
  }
  for (double& value : out.numerator) value *= to_exact;
  out.normalizer = tau * to_exact;
  out.numerator_mass = numerator_sum * to_exact / z;
  out.denominator_mass = out.normalizer / z;
}

}  // namespace kvbench
