#include "algorithms/accumulated_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/budget.hpp"
#include "algorithms/positions.hpp"
#include "core/canonical.hpp"
#include "core/error.hpp"
#include "core/lanes.hpp"
#include "core/random.hpp"
#include "sketch/cache_positions.hpp"

namespace kvbench {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

std::string prompt_scores_key(const Scoring& scoring, std::uint32_t seed) {
  std::string key = "scores of the prompt, tau " + to_string(Value{scoring.tau_init}) + ", decay " +
                    to_string(Value{scoring.decay}) + ", gain " + to_string(Value{scoring.gain});
  if (scoring.noise == LogitNoise::Kind::kNone) return key;
  return key + ", noise " + std::to_string(static_cast<int>(scoring.noise)) +
         (scoring.fresh_noise ? " per row" : " per token") + ", seed " + std::to_string(seed);
}

}  // namespace

LogitNoise Scoring::noise_on(const Stream& stream, std::uint32_t seed) const {
  return {noise, fresh_noise,
          Random(seed, stream.id.hash(), fresh_noise ? "keyformer/row" : "keyformer/token").key()};
}

SharedWork prompt_scores(const Scoring& scoring, std::uint32_t seed) {
  SharedWork work;
  work.key = prompt_scores_key(scoring, seed);
  work.prompt_rule = [scoring, seed](const Stream& stream) {
    ScoreRule rule;
    rule.noise = scoring.noise_on(stream, seed);
    rule.temperature = scoring.tau_init;
    rule.decay = scoring.decay;
    rule.gain = scoring.gain;
    return rule;
  };
  work.compute = [rule = work.prompt_rule](const SharedSetting& setting) {
    PromptScores sums =
        setting.kernels.score_sums(setting.stream, 0, setting.prompt, rule(setting.stream));
    check_prompt_scores(sums);
    return std::any(std::move(sums));
  };
  return work;
}

void check_prompt_scores(const PromptScores& scores) {
  for (const auto& head : scores) {
    for (const double score : head) {
      if (!std::isfinite(score)) throw CellError("logits of the prompt overflow");
    }
  }
}

HeldScores::HeldScores(const Setting& setting, const Scoring& scoring)
    : setting_(setting),
      scoring_(scoring),
      noise_(scoring.noise_on(setting.stream, setting.seed)),
      cache_positions_(setting.params.has("positions") && at_cache_positions(setting.params)) {}

// x -> exp(x - max x) / sum for the first `count` of scores_: the sum in eight parts, place modulo
// 8, each ascending.
void HeldScores::softmax(std::size_t count) {
  constexpr auto kLanes = static_cast<std::size_t>(Lanes::kCount);
  const std::size_t padded = (count + kLanes - 1) / kLanes * kLanes;
  scores_.resize(padded);
  std::fill(scores_.begin() + static_cast<Index>(count), scores_.end(), kNever);
  Lanes largest = Lanes::all(kNever);
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
  const Lanes inverse = Lanes::all(1.0 / sum.sum());
  for (std::size_t p = 0; p < padded; p += kLanes) {
    (Lanes::load(&scores_[p]) * inverse).store(&scores_[p]);
  }
}

void HeldScores::add(const RowLogits& row, int g, const std::vector<std::int32_t>& tokens,
                     const std::vector<double>& token_noise, double* f) {
  const std::size_t count = tokens.size();
  scores_.resize(count);
  if (cache_positions_) {
    cache_position_logits(setting_.stream, row.row, g, tokens, scores_);
  } else {
    for (std::size_t p = 0; p < count; ++p) scores_[p] = row.logit(g, tokens[p]);
  }
  if (has_token_noise()) {
    for (std::size_t p = 0; p < count; ++p) scores_[p] += token_noise[p];
  } else if (!noise_.is_none()) {
    for (std::size_t p = 0; p < count; ++p) scores_[p] += noise_.draw(g, row.row, tokens[p]);
  }
  const auto m = static_cast<double>(row.row - setting_.prompt + 1);
  const double tau = scoring_.tau_init + m * scoring_.tau_step;
  if (tau != 1.0) {
    for (double& x : scores_) x /= tau;
  }
  softmax(count);
  for (std::size_t p = 0; p < count; ++p) {
    f[p] = std::fma(scoring_.decay, f[p], scoring_.gain * scores_[p]);
  }
}

AccumulatedScores::AccumulatedScores(const Setting& setting, const Scoring& scoring, Index recent)
    : setting_(setting),
      shape_(setting.stream.shape),
      scoring_(scoring),
      held_scores_(setting, scoring),
      budget_(setting.params.tokens("budget", setting.prompt)),
      recent_(recent),
      rule_(group_rule(setting.params.word("group"))),
      scores_(static_cast<std::size_t>(shape_.group)) {
  sketch_.cache_positions = setting.params.has("positions") && at_cache_positions(setting.params);
  if (held_scores_.has_token_noise()) noise_.resize(scores_.size());
}

void AccumulatedScores::hold(Index token) {
  tokens_.push_back(static_cast<std::int32_t>(token));
  sketch_.add(SketchRow::exact(token));
  for (auto& head : scores_) head.push_back(0.0);
  for (std::size_t g = 0; g < noise_.size(); ++g) {
    noise_[g].push_back(held_scores_.token_noise(static_cast<int>(g), token));
  }
  sketch_.bookkeeping =
      static_cast<Index>(tokens_.size()) * shape_.group * scoring_.numbers_per_head;
}

void AccumulatedScores::drop(std::size_t place) {
  const auto at = static_cast<Index>(place);
  tokens_.erase(tokens_.begin() + at);
  for (auto& head : scores_) head.erase(head.begin() + at);
  for (auto& head : noise_) head.erase(head.begin() + at);
  sketch_.erase(at);
  sketch_.bookkeeping =
      static_cast<Index>(tokens_.size()) * shape_.group * scoring_.numbers_per_head;
}

void AccumulatedScores::extend(Index first, Index last) {
  if (last <= setting_.prompt) return;
  for (Index token = first; token < last; ++token) {
    hold(token);
    while (tokens_.front() < shape_.first_visible(token)) drop(0);
  }
}

void AccumulatedScores::finish_prompt() {
  const PromptRange prompt = visible_prompt(shape_, setting_.prompt);
  if (prompt.size() == 0) return;
  const auto& sums = setting_.shared.get<PromptScores>(prompt_scores_key(scoring_, setting_.seed));
  const Index recent = std::min(recent_, prompt.size());
  std::vector<Index> kept = best_of_prompt(setting_, sums, recent, budget_ - recent_);
  for (Index token = prompt.last - recent; token < prompt.last; ++token) kept.push_back(token);
  for (const Index token : kept) {
    hold(token);
    for (std::size_t g = 0; g < scores_.size(); ++g) {
      scores_[g].back() = sums[g][static_cast<std::size_t>(token)];
    }
  }
}

void AccumulatedScores::answered(const RowLogits& row) {
  static const std::vector<double> none;
  for (int g = 0; g < row.group; ++g) {
    const auto head = static_cast<std::size_t>(g);
    held_scores_.add(row, g, tokens_, noise_.empty() ? none : noise_[head], scores_[head].data());
  }
  if (static_cast<Index>(tokens_.size()) <= budget_) return;
  const auto may_go = std::upper_bound(tokens_.begin(), tokens_.end(), row.row - recent_);
  const auto count = static_cast<std::size_t>(may_go - tokens_.begin());
  if (count == 0) return;
  combine(rule_, scores_, count, combined_);
  std::size_t lowest = 0;
  for (std::size_t p = 1; p < count; ++p) {
    if (combined_[p] <= combined_[lowest]) lowest = p;  // of equals the later token goes
  }
  drop(lowest);
}

Derived AccumulatedScores::derived() const {
  Derived out = {{"budget", budget_}, {"recent", recent_}};
  if (scoring_.gen_len > 0) out.emplace_back("gen_len", scoring_.gen_len);
  return out;
}

std::vector<Index> best_of_prompt(const Setting& setting, const PromptScores& scores, Index recent,
                                  Index count) {
  const PromptRange prompt = visible_prompt(setting.stream.shape, setting.prompt);
  const GroupRule rule = group_rule(setting.params.word("group"));
  std::vector<double> combined(
      static_cast<std::size_t>(std::max<Index>(0, prompt.size() - recent)));
  for (std::size_t j = 0; j < combined.size(); ++j) {
    combined[j] = combine(rule, setting.stream.shape.group, [&](int g) {
      return scores[static_cast<std::size_t>(g)][static_cast<std::size_t>(prompt.first) + j];
    });
  }
  return best_tokens(combined, prompt.first, count);
}

Index recent_window(const Params& params, Index prompt) {
  return static_cast<Index>(std::floor(static_cast<double>(params.tokens("budget", prompt)) *
                                       params.real("recent_fraction")));
}

Parameter recent_fraction_parameter(double fallback) {
  Parameter p;
  p.name = "recent_fraction";
  p.kind = Parameter::Kind::kReal;
  p.fallback = Value{fallback};
  p.maximum = 1.0;
  p.doc = "share of the budget that is the recent window";
  return p;
}

}  // namespace kvbench
