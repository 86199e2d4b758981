#include "sketch/host_answers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/canonical.hpp"
#include "sketch/cache_positions.hpp"

namespace kvbench {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

}  // namespace

Index HostAnswers::enqueue(const Sketch& sketch, const WeightsByToken& weights,
                           const QueryRow& asked) {
  const QueryRow query = with_logits(asked);
  const Exponentials e = exponentials(sketch, weights, query);
  TokenSums sums = softmax_sums(weights, e);
  enqueue_values(sketch, weights, e);  // before divergence(), which may overwrite e

  PendingAnswer& question = questions_.emplace_back(query, sketch);
  Answer& out = question.answer;
  out.rows_are_tokens = weights.merged().empty();
  if (out.rows_are_tokens) {
    out.kl_divergence = divergence(sketch, weights, query, e, sums);
    // The kept mass is one of the exact distribution, whatever positions the sketch attends at.
    const Exponentials exact = of_row(query);
    if (exact.e != e.e) sums.kept = softmax_sums(weights, exact).kept;
  } else {
    out.numerator.assign(static_cast<std::size_t>(stream_.shape.dv), 0.0);
  }
  for (const WeightsByToken::Merged& row : weights.merged()) {
    const double c = row.w_num * canonical_exp(query.x[row.token] - e.shift);
    sums.num += c;
    const std::vector<double>& value = sketch.merged_values[static_cast<std::size_t>(row.value)];
    for (std::size_t k = 0; k < value.size(); ++k) out.numerator[k] += c * value[k];
  }
  question.set_sums(e.shift, sums);
  return static_cast<Index>(questions_.size()) - 1;
}

const Answer& HostAnswers::answer(Index question) {
  const Index dv = stream_.shape.dv;
  return questions_[static_cast<std::size_t>(question)].finish(numerators_.data() + question * dv,
                                                               dv);
}

QueryRow HostAnswers::with_logits(const QueryRow& asked) const {
  QueryRow query = asked;
  if (query.x == nullptr) {
    const LogitBlock& block = block_->logits();
    query.x = block.logits.data() + query.query_index * block.tokens;
    query.e = block.exps.data() + query.query_index * block.tokens;
    query.max_logit = block.max_logit[static_cast<std::size_t>(query.query_index)];
  }
  return query;
}

Exponentials HostAnswers::of_row(const QueryRow& query) const {
  return {query.e, stream_.shape.first_visible(query.row), query.row + 1, query.max_logit};
}

Exponentials HostAnswers::exponentials(const Sketch& sketch, const WeightsByToken& weights,
                                       const QueryRow& query) {
  const Index tokens = stream_.shape.tokens;
  if (sketch.cache_positions) {
    rerotate(sketch, query);
    return own_exponentials(weights, WeighIn::kEitherSum, rerotated_by_token_.data(), tokens,
                            kNothing, own_);
  }
  const Exponentials shared = of_row(query);
  // An exact sum holds the row's largest logit.
  if (sketch.exact_numerator || sketch.exact_denominator || is_safe(weights, shared)) {
    return shared;
  }
  double least = kNothing;
  for (const WeightsByToken::Merged& row : weights.merged()) {
    if (row.w_num != 0.0) least = std::max(least, query.x[row.token]);
  }
  const Exponentials own =
      own_exponentials(weights, WeighIn::kEitherSum, query.x, tokens, least, own_);
  return std::isfinite(own.shift) ? own : shared;
}

void HostAnswers::rerotate(const Sketch& sketch, const QueryRow& query) {
  cached_.clear();
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) cached_.push_back(row.token);
  }
  cache_position_logits(stream_, query.row, query.head, cached_, rerotated_);
  rerotated_by_token_.resize(static_cast<std::size_t>(stream_.shape.tokens));
  for (std::size_t p = 0; p < cached_.size(); ++p) {
    rerotated_by_token_[static_cast<std::size_t>(cached_[p])] = rerotated_[p];
  }
}

void HostAnswers::enqueue_values(const Sketch& sketch, const WeightsByToken& weights,
                                 const Exponentials& e) {
  if (sketch.exact_numerator) {
    values_->ask({});
    return;
  }
  double* coefficient = values_->ask(weights.weighted());
  for (const std::int32_t j : weights.weighted()) *coefficient++ = weights.num()[j] * e.e[j];
}

std::optional<double> HostAnswers::divergence(const Sketch& sketch, const WeightsByToken& weights,
                                              const QueryRow& query, Exponentials e,
                                              TokenSums sums) {
  const double* x = sketch.cache_positions ? rerotated_by_token_.data() : query.x;
  if (sums.den < kSafeDenominator) {  // the shift is far above these rows: one of their own
    e = own_exponentials(weights, WeighIn::kDenominator, x, stream_.shape.tokens, kNothing, own_);
    if (!std::isfinite(e.shift)) return std::nullopt;
    sums = softmax_sums(weights, e);
  }
  double position_term = 0.0;
  if (sketch.cache_positions) {
    for (const std::int32_t token : cached_) {
      const auto j = static_cast<std::size_t>(token);
      position_term += weights.den()[j] * e.e[j] / sums.den * (x[j] - query.x[j]);
    }
  }
  return kl_divergence(query, e.shift, sums, position_term);
}

}  // namespace kvbench
