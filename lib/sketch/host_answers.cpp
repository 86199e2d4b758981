#include "sketch/host_answers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/packed_keys.hpp"
#include "numerics/canonical.hpp"
#include "numerics/chains.hpp"
#include "numerics/lanes.hpp"
#include "sketch/cache_positions.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

std::int32_t value_row(const HeldVectors* held, std::int32_t token) {
  if (held == nullptr || held->value_row.empty()) return token;
  return held->value_row[token];
}

// x~ - x by groups of eight tokens: 0 of tokens that have no weight in the denominator.
class Differences {
 public:
  Differences(const WeightsByToken& weights, const LoggedQuery& query, const StreamShape& shape)
      : den_(weights.den()),
        x_{query.logits.read.x, shape.first_visible(query.row), shape.visible_end(query.row), 0.0},
        exact_x_{query.logits.original.x, x_.first, x_.last, 0.0} {}

  // `of` where the token weighs anything, else 0.
  Lanes weighs(Index g, Lanes of) const {
    const Lanes size = Lanes::abs(Lanes::load(den_ + g * Lanes::kCount));
    return Lanes::zero_below(size, std::numeric_limits<double>::denorm_min(), of);
  }
  Lanes of(Index g) const { return weighs(g, x_.group(g) - exact_x_.group(g)); }

 private:
  const double* den_;
  Exponentials x_;  // logits, read as exponentials are
  Exponentials exact_x_;
};

}  // namespace

Index HostAnswers::enqueue(const Sketch& sketch, const WeightsByToken& weights,
                           const QueryRow& asked, const HeldVectors* held) {
  const LoggedQuery query = with_logits(asked);
  const Exponentials e = exponentials(sketch, weights, query, held);
  const double sink = stream_.sink(query.head);
  TokenSums sums = softmax_sums(weights, e);
  add_sink(sink, e.shift, sums);
  enqueue_values(sketch, weights, e, held);  // before divergence(), which may overwrite e

  PendingAnswer& question =
      questions_.emplace_back(asked, query.logits.original.largest, sketch, weights.factor());
  Answer& out = question.answer;
  out.rows_are_tokens = weights.own_rows().empty();
  const bool compares = held != nullptr || query.logits.differ();
  const Compared with = compares ? compared(weights, query, e) : Compared();
  if (out.rows_are_tokens) {
    out.kl_divergence = divergence(sketch, weights, query, e, sums, with);
    // The kept mass is one of the exact distribution, whatever positions the sketch attends at.
    const Exponentials exact = of_row(query, query.logits.original);
    if (exact.e != e.e) {
      const double kept = compares ? with.kept : kept_sum(weights, exact);
      sums.kept = kept + canonical_exp(sink - exact.shift);
    }
  } else {
    out.numerator.assign(stream_.shape.dv, 0.0);
    add_own_rows(sketch, weights, e.shift, held, sums, out.numerator);
  }
  out.is_stored = held != nullptr;
  if (out.is_stored) out.score_error = score_error(weights, query, with);
  question.set_sums(e.shift, sums);
  return std::ssize(questions_) - 1;
}

const Answer& HostAnswers::answer(Index question) {
  const Index dv = stream_.shape.dv;
  return questions_[question].finish(numerators_.data() + question * dv, dv);
}

LoggedQuery HostAnswers::with_logits(const QueryRow& asked) const {
  return {
      asked.row, asked.head, asked.exact,
      asked.logits ? *asked.logits : ReadLogits(logits_of(block_->logits(), asked.query_index))};
}

Exponentials HostAnswers::of_row(const LoggedQuery& query, const TokenLogits& logits) const {
  return {logits.e, stream_.shape.first_visible(query.row), stream_.shape.visible_end(query.row),
          logits.largest};
}

Exponentials HostAnswers::exponentials(const Sketch& sketch, const WeightsByToken& weights,
                                       const LoggedQuery& query, const HeldVectors* held) {
  const Index tokens = stream_.shape.tokens;
  const double sink = stream_.sink(query.head);
  own_logits(sketch, weights, query, held);
  if (sketch.cache_positions) {
    rerotate(sketch, query);
    return own_exponentials(weights, WeighIn::kEitherSum, rerotated_by_token_.data(), tokens, sink,
                            own_);
  }
  const Exponentials shared = of_row(query, query.logits.read);
  double least = sink;  // or of own rows that weigh anything
  bool safe = is_safe(weights, shared) || canonical_exp(sink - shared.shift) >= kSafeDenominator;
  for (std::size_t i = 0; i < own_logits_.size(); ++i) {
    const WeightsByToken::OwnRow& row = weights.own_rows()[i];
    if (row.w_num != 0.0 || row.w_den != 0.0) least = std::max(least, own_logits_[i]);
    safe = safe || row.w_den * std::exp(own_logits_[i] - shared.shift) >= kSafeDenominator;
  }
  // An exact sum holds the row's largest logit.
  if (sketch.exact_numerator || sketch.exact_denominator) return shared;
  if (safe && least <= shared.shift) return shared;
  const Exponentials own =
      own_exponentials(weights, WeighIn::kEitherSum, query.logits.read.x, tokens, least, own_);
  return std::isfinite(own.shift) ? own : shared;
}

void HostAnswers::own_logits(const Sketch& sketch, const WeightsByToken& weights,
                             const LoggedQuery& query, const HeldVectors* held) {
  const StreamShape& shape = stream_.shape;
  const auto& own_keys = held != nullptr ? held->own_keys : sketch.own_keys;
  const std::vector<WeightsByToken::OwnRow>& rows = weights.own_rows();
  own_logits_.resize(rows.size());
  std::vector<const double*> keys;
  bool has_feature = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    has_feature = has_feature || rows[i].feature;
    if (rows[i].key < 0) continue;
    keys.push_back(own_keys[rows[i].key].data());
  }
  std::vector<double> products;
  double half = 0.0;  // half of the query's squared length, which features take off
  if (!keys.empty()) {
    const double* q = stream_.query(query.head, query.row);
    products.resize(keys.size());
    canonical_chains<DotStep>(q, keys, shape.d, products.data());
    if (has_feature) half = 0.5 * shape.scale * canonical_dot(q, q, shape.d);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].key < 0) {
      own_logits_[i] = query.logits.read.x[rows[i].token];
      continue;
    }
    const double x = shape.scale * products[next++];
    if (rows[i].feature) {
      own_logits_[i] = x - half + sketch.feature_shift;
      continue;
    }
    own_logits_[i] = shape.softcap > 0.0 ? canonical_softcap(x, shape.softcap) : x;
    if (shape.alibi) {
      if (rows[i].token < 0) {
        throw CellError("a key of no token has no position, by which the layer biases its logits");
      }
      add_alibi(stream_, query.head, query.row, rows[i].token, rows[i].token + 1, &own_logits_[i]);
    }
  }
}

void HostAnswers::add_own_rows(const Sketch& sketch, const WeightsByToken& weights, double shift,
                               const HeldVectors* held, TokenSums& sums,
                               std::vector<double>& numerator) const {
  const auto& own_values = held != nullptr ? held->own_values : sketch.own_values;
  for (std::size_t i = 0; i < own_logits_.size(); ++i) {
    const WeightsByToken::OwnRow& row = weights.own_rows()[i];
    const double e = canonical_exp(own_logits_[i] - shift);
    const double c = row.w_num * e;
    sums.den += row.w_den * e;
    sums.num += c;
    const double* value = row.value >= 0 ? own_values[row.value].data()
                                         : stream_.values.row(value_row(held, row.token));
    for (std::size_t k = 0; k < numerator.size(); ++k) numerator[k] += c * value[k];
  }
}

void HostAnswers::rerotate(const Sketch& sketch, const LoggedQuery& query) {
  cached_.clear();
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) cached_.push_back(row.token);
  }
  cache_position_logits(stream_, query.row, query.head, cached_, rerotated_);
  rerotated_by_token_.resize(stream_.shape.tokens);
  for (std::size_t p = 0; p < cached_.size(); ++p) {
    rerotated_by_token_[cached_[p]] = rerotated_[p];
  }
}

void HostAnswers::enqueue_values(const Sketch& sketch, const WeightsByToken& weights,
                                 const Exponentials& e, const HeldVectors* held) {
  if (sketch.exact_numerator) {
    values_->ask({});
    return;
  }
  if (held != nullptr && !held->value_row.empty()) {
    enqueue_mapped_values(weights, e, *held);
    return;
  }
  double* coefficient = values_->ask(weights.weighted());
  for (const std::int32_t j : weights.weighted()) *coefficient++ = weights.num()[j] * e.e[j];
}

// Rows of unquantised tokens precede those of decoded ones, both in the order of the tokens.
void HostAnswers::enqueue_mapped_values(const WeightsByToken& weights, const Exponentials& e,
                                        const HeldVectors& held) {
  const bool is_new = mapped_of_ != &weights || mapped_version_ != weights.version() ||
                      value_row_version_ != held.value_row_version;
  if (is_new) {
    mapped_tokens_.clear();
    value_rows_.clear();
    for (const bool decoded : {false, true}) {
      for (const std::int32_t j : weights.weighted()) {
        const std::int32_t row = held.value_row[j];
        if ((row != j) != decoded) continue;
        mapped_tokens_.push_back(j);
        value_rows_.push_back(row);
      }
    }
    mapped_of_ = &weights;
    mapped_version_ = weights.version();
    value_row_version_ = held.value_row_version;
  }
  double* coefficient = values_->ask(value_rows_);
  for (const std::int32_t j : mapped_tokens_) *coefficient++ = weights.num()[j] * e.e[j];
}

// One pass for all: each sum is a chain that waits for itself.
HostAnswers::Compared HostAnswers::compared(const WeightsByToken& weights, const LoggedQuery& query,
                                            const Exponentials& e) const {
  const Differences difference(weights, query, stream_.shape);
  const Exponentials exact = of_row(query, query.logits.original);
  Lanes differences = Lanes::all(0.0);
  Lanes kept = differences;
  Lanes mass = differences;
  Lanes weighted = differences;
  Lanes count = differences;
  for (const std::int32_t g : weights.groups()) {
    const Index at = Index{g} * Lanes::kCount;
    const Lanes all = exact.group(g);
    const Lanes some = difference.weighs(g, all);
    const Lanes off = difference.of(g);
    differences = Lanes::fma(Lanes::load(weights.den() + at) * e.group(g), off, differences);
    kept = Lanes::fma(Lanes::load(weights.kept() + at), all, kept);
    mass = mass + some;
    weighted = Lanes::fma(some, off, weighted);
    count = count + difference.weighs(g, Lanes::all(1.0));
  }
  return {differences.sum(), kept.sum(), mass.sum(), weighted.sum(), count.sum()};
}

std::optional<double> HostAnswers::score_error(const WeightsByToken& weights,
                                               const LoggedQuery& query,
                                               const Compared& with) const {
  if (!(with.mass > 0.0)) return std::nullopt;
  const Differences difference(weights, query, stream_.shape);
  const Lanes mean = Lanes::all(with.weighted / with.mass);
  Lanes squares = Lanes::all(0.0);
  for (const std::int32_t g : weights.groups()) {
    const Lanes off = difference.weighs(g, difference.of(g) - mean);
    squares = Lanes::fma(off, off, squares);
  }
  return std::sqrt(squares.sum() / with.count);
}

std::optional<double> HostAnswers::divergence(const Sketch& sketch, const WeightsByToken& weights,
                                              const LoggedQuery& query, Exponentials e,
                                              TokenSums sums, const Compared& with) {
  const double* x = sketch.cache_positions ? rerotated_by_token_.data() : query.logits.read.x;
  double differences = with.differences;
  if (sums.den < kSafeDenominator) {  // the shift is far above these rows: one of their own
    const double sink = stream_.sink(query.head);
    e = own_exponentials(weights, WeighIn::kDenominator, x, stream_.shape.tokens, sink, own_);
    if (!std::isfinite(e.shift)) return std::nullopt;
    sums = softmax_sums(weights, e);
    add_sink(sink, e.shift, sums);
    if (x == query.logits.read.x && query.logits.differ())
      differences = compared(weights, query, e).differences;
  }
  double position_term = 0.0;
  if (sketch.cache_positions) {
    for (const std::int32_t token : cached_) {
      const std::size_t j = token;
      position_term += weights.den()[j] * e.e[j] / sums.den * (x[j] - query.logits.read.x[j]);
    }
  } else if (x != query.logits.original.x) {
    position_term = differences / sums.den;
  }
  return kl_divergence(query.exact, e.shift, sums, position_term);
}

}  // namespace kvbench
