#include "sketch/estimator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/canonical.hpp"
#include "core/lanes.hpp"
#include "sketch/cache_positions.hpp"

namespace kvbench {
namespace {

// Below this the shared shift may have cost the sketch's own rows their digits.
constexpr double kSafeDenominator = 1e-250;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// Held rows answer so many questions, or so many weights, at once: 32 MB to be brought there.
constexpr Index kEnoughHeldQuestions = 4096;
constexpr std::size_t kEnoughHeldWeights = std::size_t{1} << 20;

// KL(p^ || p) = sum p^ ln(w_den) + sum p^ (x' - x) - ln(tau / Z), where `sum` is under `shift`
// and `turn` is the second term. The shifts are subtracted from each other first: beside logits of
// 1e77 a logarithm would vanish.
double kl_divergence(const QueryRow& query, double shift, const TokenSums& sum, double turn) {
  const double log_ratio =
      std::log(sum.den) + (shift - query.exact_max) - std::log(query.exact_normalizer);
  return std::max(0.0, sum.log / sum.den - log_ratio + turn);
}

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

Estimator::Estimator(const Stream& stream, const Kernels& kernels, const RowBlock* block)
    : stream_(stream),
      block_(block),
      weights_(stream.shape.tokens),
      values_(kernels.weighted_values(stream.values)) {}

void Estimator::take(const Sketch& sketch) {
  sketch_ = &sketch;
  weights_.take(sketch);
  if (!sketch.cache_positions) return;
  cached_.clear();
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) cached_.push_back(row.token);
  }
}

TokenSums Estimator::sums(const Exponentials& e) const {
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
  return {num.sum(), den.sum(), log.sum(), held.sum()};
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
    cache_position_logits(stream_, query.row, query.head, cached_, turned_);
    turned_of_.resize(static_cast<std::size_t>(stream_.shape.tokens));
    for (std::size_t p = 0; p < cached_.size(); ++p) {
      turned_of_[static_cast<std::size_t>(cached_[p])] = turned_[p];
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
  for (const WeightsByToken::Merged& row : weights_.merged()) {
    if (row.w_num != 0.0) least = std::max(least, query.x[row.token]);
  }
  const Exponentials own = own_exponentials(query.x, least, weighs);
  return std::isfinite(own.shift) ? own : shared;
}

std::optional<double> Estimator::divergence(const QueryRow& query, Exponentials e, TokenSums sum) {
  const double* x = sketch_->cache_positions ? turned_of_.data() : query.x;
  if (sum.den < kSafeDenominator) {  // the shift is far above these rows: one of their own
    e = own_exponentials(x, kNothing, [&](std::size_t j) { return weights_.den()[j] != 0.0; });
    if (!std::isfinite(e.shift)) return std::nullopt;
    sum = sums(e);
  }
  double turn = 0.0;  // sum p^ (x' - x): what attending at other positions adds
  if (sketch_->cache_positions) {
    for (const std::int32_t token : cached_) {
      const auto j = static_cast<std::size_t>(token);
      turn += weights_.den()[j] * e.e[j] / sum.den * (turned_of_[j] - query.x[j]);
    }
  }
  return kl_divergence(query, e.shift, sum, turn);
}

void Estimator::settle(Question& question, double shift, const TokenSums& sum) {
  const QueryRow& query = question.query;
  Answer& out = question.estimate;
  const double z = query.exact_normalizer;
  question.to_exact = std::exp(shift - query.exact_max);
  question.from_exact = std::exp(query.exact_max - shift);
  const double exact_sum = z * question.from_exact;
  question.tau = question.exact_denominator ? exact_sum : sum.den;
  out.empty_denominator = !(question.tau > 0.0);
  out.normalizer = question.tau * question.to_exact;
  out.numerator_mass = (question.exact_numerator ? exact_sum : sum.num) * question.to_exact / z;
  out.denominator_mass = out.normalizer / z;
  if (question.exact_numerator) {
    out.kept_mass = 1.0;
  } else if (out.rows_are_tokens) {
    out.kept_mass = sum.held * std::exp(query.max_logit - query.exact_max) / z;
  }
}

void Estimator::ask(const QueryRow& query) {
  const bool plain_tokens = !sketch_->cache_positions && weights_.merged().empty();
  if (query.x == nullptr && block_->held() != nullptr && plain_tokens) {
    ask_held_rows(query);
  } else {
    ask_here(query);
  }
}

// Puts the weights as they are now into the batch. A method that compressed once gains a token at
// every row: its weights begin with the last row's, and only what is new is added.
void Estimator::list_weights() {
  version_ = weights_.version();
  weights_.list(list_);
  const auto last = batch_.weights.end() - listed_.weights;
  const auto added = std::mismatch(last, batch_.weights.end(), list_.begin(), list_.end());
  const bool goes_on = added.first == batch_.weights.end();
  if (!goes_on) listed_.first_weight = static_cast<Index>(batch_.weights.size());
  listed_.weights = static_cast<Index>(list_.size());
  batch_.weights.insert(batch_.weights.end(), goes_on ? added.second : list_.begin(), list_.end());
}

void Estimator::ask_held_rows(const QueryRow& query) {
  if (version_ != weights_.version()) list_weights();
  batch_.questions.push_back(listed_);
  batch_.questions.back().place = query.place;
  Question& question = questions_.emplace_back();
  question.query = query;
  question.query.max_logit = block_->held()->max_logit()[static_cast<std::size_t>(query.place)];
  question.exact_numerator = sketch_->exact_numerator;
  question.exact_denominator = sketch_->exact_denominator;
  question.by_held_rows = true;
}

void Estimator::ask_here(const QueryRow& asked) {
  QueryRow query = asked;
  if (query.x == nullptr) {
    const LogitBlock& block = block_->logits();
    query.x = block.logits.data() + query.place * block.tokens;
    query.e = block.exps.data() + query.place * block.tokens;
    query.max_logit = block.max_logit[static_cast<std::size_t>(query.place)];
  }
  const Exponentials e = exponentials(query);
  TokenSums sum = sums(e);
  if (sketch_->exact_numerator) {
    values_->ask({});
  } else {
    double* coefficient = values_->ask(weights_.weighted());
    for (const std::int32_t j : weights_.weighted()) *coefficient++ = weights_.num()[j] * e.e[j];
  }

  Question& question = questions_.emplace_back();
  question.query = query;
  question.exact_numerator = sketch_->exact_numerator;
  question.exact_denominator = sketch_->exact_denominator;
  Answer& out = question.estimate;
  out.rows_are_tokens = weights_.merged().empty();
  if (out.rows_are_tokens) {
    out.kl_divergence = divergence(query, e, sum);
    // The kept mass is one of the exact distribution, whatever positions the sketch attends at.
    const Exponentials exact = of_row(query);
    if (exact.e != e.e) sum.held = sums(exact).held;
  } else {
    out.numerator.assign(static_cast<std::size_t>(stream_.shape.dv), 0.0);
  }
  for (const WeightsByToken::Merged& row : weights_.merged()) {
    const double c = row.w_num * canonical_exp(query.x[row.token] - e.shift);
    sum.num += c;
    const std::vector<double>& value = sketch_->merged_values[static_cast<std::size_t>(row.value)];
    for (std::size_t k = 0; k < value.size(); ++k) out.numerator[k] += c * value[k];
  }
  settle(question, e.shift, sum);
}

bool Estimator::full() const {
  return values_->full() || static_cast<Index>(batch_.questions.size()) >= kEnoughHeldQuestions ||
         batch_.weights.size() >= kEnoughHeldWeights;
}

void Estimator::answer_alone(const Question& question, const AnswerBatch::Question& asked,
                             const std::function<void(const Answer&)>& visit) {
  Sketch sketch;
  for (Index i = 0; i < asked.weights; ++i) {
    const TokenWeight& weight = batch_.weights[static_cast<std::size_t>(asked.first_weight + i)];
    SketchRow row;
    row.token = weight.token;
    row.w_num = weight.num;
    row.w_den = weight.den;
    row.holds_value = weight.held != 0;
    sketch.add(row);
  }
  sketch.exact_numerator = question.exact_numerator;
  sketch.exact_denominator = question.exact_denominator;
  if (!alone_) alone_ = std::make_unique<Estimator>(stream_, cpu_kernels(), block_);
  alone_->take(sketch);
  alone_->ask_here(question.query);
  alone_->answer(visit);
}

void Estimator::answer(const std::function<void(const Answer&)>& visit) {
  const auto dv = static_cast<std::size_t>(stream_.shape.dv);
  values_->sums(numerators_);
  if (!batch_.questions.empty()) block_->held()->answer(batch_, held_numerators_, masses_);
  std::size_t here = 0;  // questions visited so far, of both kinds
  std::size_t by_held_rows = 0;
  for (Question& question : questions_) {
    Answer& out = question.estimate;
    const double* sums = nullptr;
    if (question.by_held_rows) {
      const AnswerBatch::Question& asked = batch_.questions[by_held_rows];
      const AnswerMasses& mass = masses_[by_held_rows];
      sums = held_numerators_.data() + by_held_rows++ * dv;
      if (mass.largest_den < kSafeDenominator) {
        answer_alone(question, asked, visit);
        continue;
      }
      const double shift = question.query.max_logit;
      settle(question, shift, mass.sums);
      out.kl_divergence = kl_divergence(question.query, shift, mass.sums, 0.0);
    } else {
      sums = numerators_.data() + here++ * dv;
    }
    out.numerator.resize(dv, 0.0);
    out.answer.assign(dv, 0.0);
    for (std::size_t k = 0; k < dv; ++k) {
      const QueryRow& query = question.query;
      out.numerator[k] =
          question.exact_numerator
              ? query.exact_output[k] * (query.exact_normalizer * question.from_exact)
              : out.numerator[k] + sums[k];
      if (!out.empty_denominator) out.answer[k] = out.numerator[k] / question.tau;
      out.numerator[k] *= question.to_exact;
    }
    visit(out);
  }
  questions_.clear();
  batch_.clear();
  listed_ = {};
  version_ = 0;
}

}  // namespace kvbench
