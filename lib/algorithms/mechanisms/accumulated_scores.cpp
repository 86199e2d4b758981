#include "algorithms/mechanisms/accumulated_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/last_lowest.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/lanes.hpp"
#include "sketch/cache_positions.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

LogitNoise logit_noise(const Stream& stream, LogitNoise::Kind kind, bool fresh,
                       std::uint32_t seed) {
  return {kind, fresh,
          CounterRng(seed, stream.id.hash(), fresh ? "keyformer/row" : "keyformer/token").key()};
}

}  // namespace

LogitNoise Scoring::noise_on(const Stream& stream, std::uint32_t seed) const {
  return logit_noise(stream, noise, fresh_noise, seed);
}

PromptScores::PromptScores(const Scoring& scoring, std::uint32_t for_seed)
    : noise(scoring.noise),
      tau(scoring.tau_init),
      decay(scoring.decay),
      gain(scoring.gain),
      rows(scoring.prompt_rows) {
  if (noise == LogitNoise::Kind::kNone) return;
  fresh_noise = scoring.fresh_noise;
  seed = for_seed;
}

std::vector<ScoreSums> PromptScores::compute_all(const SharedContext& context,
                                                 const std::vector<PromptScores>& pieces) {
  std::map<Index, std::vector<std::size_t>> by_first;  // pieces by their first row
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const Index rows = pieces[p].rows;
    by_first[rows == 0 ? 0 : std::max<Index>(0, context.prompt - rows)].push_back(p);
  }
  std::vector<ScoreSums> out(pieces.size());
  for (const auto& [first, places] : by_first) {
    std::vector<ScoreRule> rules;
    for (const std::size_t p : places) {
      const PromptScores& piece = pieces[p];
      const LogitNoise noise =
          logit_noise(context.stream, piece.noise, piece.fresh_noise, piece.seed);
      rules.push_back({noise, piece.tau, piece.decay, piece.gain});
    }
    std::vector<ScoreSums> sums =
        context.kernels.score_sums_by(context.stream, first, context.prompt, rules);
    for (std::size_t r = 0; r < places.size(); ++r) out[places[r]] = std::move(sums[r]);
  }
  return out;
}

ScoreSums PromptScores::compute(const SharedContext& context) const {
  ScoreSums sums = std::move(compute_all(context, {*this}).front());
  check(sums);
  return sums;
}

void PromptScores::check(const ScoreSums& scores) {
  for (const auto& head : scores) {
    for (const double score : head) {
      if (!std::isfinite(score)) throw CellError("logits of the prompt overflow");
    }
  }
}

KeptScores::KeptScores(const CellContext& context, const Scoring& scoring, Positions positions)
    : context_(context),
      scoring_(scoring),
      noise_(scoring.noise_on(context.stream, context.seed)),
      cache_positions_(positions == Positions::kCache) {}

// x -> exp(x - max x) / sum for the first `count` of scores_: the sum in eight parts, place modulo
// 8, each ascending, and the sink last.
void KeptScores::softmax(std::size_t count, double sink) {
  constexpr std::size_t kLanes = Lanes::kCount;
  const std::size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  scores_.resize(padded);
  std::fill(scores_.begin() + count, scores_.end(), kNoScore);
  Lanes largest = Lanes::all(sink);
  for (std::size_t p = 0; p < padded; p += kLanes) {
    largest = Lanes::max(largest, Lanes::load(&scores_[p]));
  }
  const Lanes max = Lanes::all(largest.largest());
  Lanes sum = Lanes::all(0.0);
  for (std::size_t p = 0; p < padded; p += kLanes) {
    const Lanes e = canonical_exp(Lanes::load(&scores_[p]) - max);
    e.store(&scores_[p]);
    sum = sum + e;
  }
  const double total = sum.sum() + canonical_exp(sink - largest.largest());
  const Lanes inverse = Lanes::all(1.0 / total);
  for (std::size_t p = 0; p < padded; p += kLanes) {
    (Lanes::load(&scores_[p]) * inverse).store(&scores_[p]);
  }
}

void KeptScores::add(const RowLogits& row, int g, const std::vector<std::int32_t>& tokens,
                     const std::vector<double>& token_noise, double* f) {
  const std::size_t count = tokens.size();
  scores_.resize(count);
  if (cache_positions_) {
    cache_position_logits(context_.stream, row.row, g, tokens, scores_);
  } else {
    for (std::size_t p = 0; p < count; ++p) scores_[p] = row.logit(g, tokens[p]);
  }
  if (has_token_noise()) {
    for (std::size_t p = 0; p < count; ++p) scores_[p] += token_noise[p];
  } else if (!noise_.is_none()) {
    for (std::size_t p = 0; p < count; ++p) scores_[p] += noise_.draw(g, row.row, tokens[p]);
  }
  const double m = row.row - context_.prompt + 1;
  const double tau = scoring_.tau_init + m * scoring_.tau_step;
  if (tau != 1.0) {
    for (double& x : scores_) x /= tau;
  }
  softmax(count, row.sink(g) / tau);
  for (std::size_t p = 0; p < count; ++p) {
    f[p] = std::fma(scoring_.decay, f[p], scoring_.gain * scores_[p]);
  }
}

AccumulatedScores::AccumulatedScores(const CellContext& context, const Scoring& scoring,
                                     const RankedSubset& subset)
    : context_(context),
      shape_(context.stream.shape),
      scoring_(scoring),
      kept_scores_(context, scoring, subset.positions),
      subset_(subset),
      scores_(shape_.heads_per_kv) {
  sketch_.cache_positions = subset.positions == Positions::kCache;
  if (kept_scores_.has_token_noise()) noise_.resize(scores_.size());
}

void AccumulatedScores::keep(Index token) {
  tokens_.push_back(static_cast<std::int32_t>(token));
  sketch_.add(SketchRow::exact(token));
  for (auto& head : scores_) head.push_back(0.0);
  for (std::size_t g = 0; g < noise_.size(); ++g) {
    noise_[g].push_back(kept_scores_.token_noise(static_cast<int>(g), token));
  }
  sketch_.bookkeeping = std::ssize(tokens_) * shape_.heads_per_kv * scoring_.numbers_per_head;
}

void AccumulatedScores::drop(std::size_t place) {
  const Index at = place;
  tokens_.erase(tokens_.begin() + at);
  for (auto& head : scores_) head.erase(head.begin() + at);
  for (auto& head : noise_) head.erase(head.begin() + at);
  sketch_.erase(at);
  sketch_.bookkeeping = std::ssize(tokens_) * shape_.heads_per_kv * scoring_.numbers_per_head;
}

void AccumulatedScores::extend(Index first, Index last) {
  if (last <= context_.prompt) return;
  for (Index token = first; token < last; ++token) {
    keep(token);
    while (tokens_.front() < shape_.first_visible(token)) drop(0);
  }
}

void AccumulatedScores::finish_prompt() {
  const PromptRange prompt = visible_prompt(shape_, context_.prompt);
  if (!scoring_.scores_prompt(prompt.size(), subset_.budget)) {
    for (Index token = prompt.first; token < prompt.last; ++token) keep(token);
    return;
  }
  const ScoreSums& sums = context_.shared.get(PromptScores(scoring_, context_.seed));
  const Index recent = std::min(subset_.recent, prompt.size());
  std::vector<Index> kept = best_of_prompt(context_, sums, subset_, recent);
  for (Index token = prompt.last - recent; token < prompt.last; ++token) kept.push_back(token);
  for (const Index token : kept) {
    keep(token);
    for (std::size_t g = 0; g < scores_.size(); ++g) {
      scores_[g].back() = sums[g][token];
    }
  }
}

void AccumulatedScores::answered(const RowLogits& row) {
  static const std::vector<double> none;
  for (int g = 0; g < row.heads_per_kv; ++g) {
    const std::size_t head = g;
    kept_scores_.add(row, g, tokens_, noise_.empty() ? none : noise_[head], scores_[head].data());
  }
  if (std::ssize(tokens_) <= subset_.budget) return;
  const auto may_go = std::upper_bound(tokens_.begin(), tokens_.end(), row.row - subset_.recent);
  const std::size_t count = may_go - tokens_.begin();
  if (count == 0) return;
  combine(subset_.group, scores_, count, combined_);
  drop(last_lowest(combined_.data(), count));
}

std::vector<DerivedKey> ranked_subset_keys() {
  return {{"budget", "tokens that may be kept"}, {"recent", "last tokens, kept exactly"}};
}

Derived AccumulatedScores::derived() const {
  Derived out = {{"budget", subset_.budget}, {"recent", subset_.recent}};
  if (scoring_.gen_len > 0) out.emplace_back("gen_len", scoring_.gen_len);
  return out;
}

KeptCounts most_kept_by_score(const TokenCount& budget, Index numbers_per_head,
                              const StreamShape& shape, Index prompt) {
  const Index tokens = std::min(budget.of(prompt) + 1, most_visible(shape));
  return exact_tokens(tokens, tokens * shape.heads_per_kv * numbers_per_head);
}

std::vector<double> combined_scores(const ScoreSums& scores, GroupRule group, PromptRange range) {
  std::vector<double> combined(range.size());
  for (std::size_t j = 0; j < combined.size(); ++j) {
    combined[j] = combine(group, static_cast<int>(scores.size()),
                          [&](int g) { return scores[g][range.first + j]; });
  }
  return combined;
}

std::vector<Index> best_of_prompt(const CellContext& context, const ScoreSums& scores,
                                  const RankedSubset& subset, Index last) {
  const PromptRange prompt = visible_prompt(context.stream.shape, context.prompt);
  const PromptRange ranked{prompt.first, std::max(prompt.first, prompt.last - last)};
  return best_tokens(combined_scores(scores, subset.group, ranked), prompt.first,
                     subset.budget - subset.recent);
}

Index recent_window(Index budget, double recent_fraction) {
  return static_cast<Index>(std::floor(static_cast<double>(budget) * recent_fraction));
}

}  // namespace kvbench
