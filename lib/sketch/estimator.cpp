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

}  // namespace

Estimator::Estimator(const Stream& stream)
    : stream_(stream),
      place_of_(static_cast<std::size_t>(stream.shape.tokens), -1),
      sums_(stream.values) {}

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
      value_held_.push_back(0.0);
    }
    const auto at = static_cast<std::size_t>(place);
    w_den_[at] += row.w_den;
    const double w_num = row.scaled ? row.w_num * sketch.numerator_scale : row.w_num;
    if (row.merged_value >= 0) {
      merged_.push_back({row.token, row.merged_value, w_num});
      rows_are_tokens_ = false;
    } else {
      w_num_[at] += w_num;
      if (row.holds_value) value_held_[at] = 1.0;
    }
  }
  w_log_.resize(w_den_.size());
  double last_w = 1.0;  // most tokens weigh the same
  double last_log = 0.0;
  for (std::size_t i = 0; i < w_den_.size(); ++i) {
    if (w_den_[i] != last_w) {
      last_w = w_den_[i];
      last_log = last_w > 0.0 ? last_w * std::log(last_w) : 0.0;
    }
    w_log_[i] = last_log;
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
  if (shift == query.max_logit) {
    for (std::size_t i = 0; i < tokens_.size(); ++i) e_[i] = query.e[tokens_[i]];
  } else {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      e_[i] = canonical_exp(query.x[tokens_[i]] - shift);
    }
  }
  return shift;
}

// Of the exact distribution, whatever positions the sketch attends at.
double Estimator::kept_mass(const QueryRow& query, double shift) const {
  const bool own = !sketch_->cache_positions;
  double kept = 0.0;
  if (own) {
    kept = dot(value_held_, e_);
  } else {
    for (std::size_t i = 0; i < tokens_.size(); ++i) kept += value_held_[i] * query.e[tokens_[i]];
  }
  return kept * std::exp((own ? shift : query.max_logit) - query.exact_max) /
         query.exact_normalizer;
}

void Estimator::ask(const QueryRow& query) {
  const double shift = exponentials(query);
  const double tau = dot(w_den_, e_);
  double numerator_sum = dot(w_num_, e_);
  for (std::size_t i = 0; i < tokens_.size(); ++i) coefficients_[i] = w_num_[i] * e_[i];

  Question& question = questions_.emplace_back();
  Estimate& out = question.estimate;
  if (!merged_.empty()) out.numerator.assign(static_cast<std::size_t>(stream_.shape.dv), 0.0);
  for (const MergedRow& row : merged_) {
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
  out.rows_are_tokens = rows_are_tokens_;
  if (rows_are_tokens_) out.kl_divergence = divergence(query, shift, tau);
  if (sketch_->exact_numerator) {
    out.kept_mass = 1.0;
    numerator_sum = z * question.from_exact;
    coefficients_.assign(coefficients_.size(), 0.0);
  } else if (rows_are_tokens_) {
    out.kept_mass = kept_mass(query, shift);
  }
  question.tau = sketch_->exact_denominator ? z * question.from_exact : tau;
  out.empty_denominator = !(question.tau > 0.0);
  out.normalizer = question.tau * question.to_exact;
  out.numerator_mass = numerator_sum * question.to_exact / z;
  out.denominator_mass = out.normalizer / z;
  sums_.add(tokens_, coefficients_);
}

void Estimator::answer(const std::function<void(const Estimate&)>& visit) {
  const auto dv = static_cast<std::size_t>(stream_.shape.dv);
  sums_.sums(numerators_);
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
