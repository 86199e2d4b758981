#include "algorithms/accumulated_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/budget.hpp"
#include "algorithms/positions.hpp"
#include "core/canonical.hpp"
#include "core/error.hpp"
#include "sketch/cache_positions.hpp"

namespace kvbench {
namespace {

// Below this the row's own largest logit has cost the held tokens their digits.
constexpr double kSafeSum = 1e-250;

std::string prompt_scores_key(const Scoring& scoring, std::uint32_t seed) {
  std::string key = "scores of the prompt, tau " + to_string(Value{scoring.tau_init}) + ", decay " +
                    to_string(Value{scoring.decay}) + ", gain " + to_string(Value{scoring.gain});
  if (scoring.noise == LogitNoise::Kind::kNone) return key;
  return key + ", noise " + std::to_string(static_cast<int>(scoring.noise)) +
         (scoring.fresh_noise ? " per row" : " per token") + ", seed " + std::to_string(seed);
}

// x -> exp(x - max x) / sum.
void softmax(std::vector<double>& x) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double logit : x) largest = std::max(largest, logit);
  double sum = 0.0;
  for (double& value : x) {
    value = canonical_exp(value - largest);
    sum += value;
  }
  const double inverse = 1.0 / sum;
  for (double& value : x) value *= inverse;
}

}  // namespace

LogitNoise Scoring::noise_on(const Stream& stream, std::uint32_t seed) const {
  return {noise, fresh_noise,
          Random(seed, stream.id.hash(), fresh_noise ? "keyformer/row" : "keyformer/token")};
}

SharedWork prompt_scores(const Scoring& scoring, std::uint32_t seed) {
  return {prompt_scores_key(scoring, seed), [scoring, seed](const SharedSetting& setting) {
            ScoreRule rule;
            rule.noise = scoring.noise_on(setting.stream, seed);
            rule.temperature = scoring.tau_init;
            rule.decay = scoring.decay;
            rule.gain = scoring.gain;
            PromptScores sums = setting.kernels.score_sums(setting.stream, 0, setting.prompt, rule);
            for (const auto& head : sums) {
              for (const double score : head) {
                if (!std::isfinite(score)) throw CellError("logits of the prompt overflow");
              }
            }
            return std::any(std::move(sums));
          }};
}

HeldScores::HeldScores(const Setting& setting, const Scoring& scoring)
    : setting_(setting),
      scoring_(scoring),
      noise_(scoring.noise_on(setting.stream, setting.seed)),
      cache_positions_(setting.params.has("positions") && at_cache_positions(setting.params)) {}

void HeldScores::compute(const RowLogits& row, int g, const std::vector<std::int32_t>& tokens,
                         std::vector<double>& out) {
  out.resize(tokens.size());
  if (cache_positions_) {
    cache_position_logits(setting_.stream, row.row, g, tokens, out);
  } else if (scoring_.is_plain() && scoring_.tau_init == 1.0) {
    // The row's exponentials serve as they are, unless the held tokens lie far below its largest.
    double sum = 0.0;
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      out[p] = row.exps(g)[tokens[p]];
      sum += out[p];
    }
    if (sum >= kSafeSum) {
      const double inverse = 1.0 / sum;
      for (double& score : out) score *= inverse;
      return;
    }
    for (std::size_t p = 0; p < tokens.size(); ++p) out[p] = row.logits(g)[tokens[p]];
  } else {
    for (std::size_t p = 0; p < tokens.size(); ++p) out[p] = row.logits(g)[tokens[p]];
  }
  if (!scoring_.is_plain() || scoring_.tau_init != 1.0) {
    const auto m = static_cast<double>(row.row - setting_.prompt + 1);
    const double tau = scoring_.tau_init + m * scoring_.tau_step;
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      out[p] = (out[p] + noise_.draw(g, row.row, tokens[p])) / tau;
    }
  }
  softmax(out);
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
}

void AccumulatedScores::hold(Index token) {
  tokens_.push_back(static_cast<std::int32_t>(token));
  sketch_.add(SketchRow::exact(token));
  for (auto& head : scores_) head.push_back(0.0);
  sketch_.bookkeeping =
      static_cast<Index>(tokens_.size()) * shape_.group * scoring_.numbers_per_head;
}

void AccumulatedScores::drop(std::size_t place) {
  const auto at = static_cast<Index>(place);
  tokens_.erase(tokens_.begin() + at);
  for (auto& head : scores_) head.erase(head.begin() + at);
  sketch_.erase(at);
  sketch_.bookkeeping =
      static_cast<Index>(tokens_.size()) * shape_.group * scoring_.numbers_per_head;
}

double AccumulatedScores::combined(std::size_t place) const {
  return combine(rule_, shape_.group,
                 [&](int g) { return scores_[static_cast<std::size_t>(g)][place]; });
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
  std::vector<double> score;
  for (int g = 0; g < row.group; ++g) {
    held_scores_.compute(row, g, tokens_, score);
    std::vector<double>& f = scores_[static_cast<std::size_t>(g)];
    for (std::size_t p = 0; p < score.size(); ++p) {
      f[p] = std::fma(scoring_.decay, f[p], scoring_.gain * score[p]);
    }
  }
  if (static_cast<Index>(tokens_.size()) <= budget_) return;
  std::size_t lowest = tokens_.size();
  double lowest_score = 0.0;
  for (std::size_t p = 0; p < tokens_.size() && tokens_[p] <= row.row - recent_; ++p) {
    const double candidate = combined(p);
    // Of equals the later token goes.
    if (lowest == tokens_.size() || candidate <= lowest_score) {
      lowest = p;
      lowest_score = candidate;
    }
  }
  if (lowest < tokens_.size()) drop(lowest);
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
