#include "algorithms/mechanisms/token_scores.hpp"

#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/expected_queries.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

// Defaults of expected_attention.
constexpr Index kExpectedSinks = 4;
constexpr Index kExpectedFuture = 512;

constexpr double kUnitFloor = 1e-12;
constexpr double kCosineFloor = 1e-8;

// Scores of keydiff: the mean key is that of `all`, the scores are of `tokens`.
std::vector<double> difference_scores(const Stream& stream, PromptRange all, PromptRange tokens) {
  std::vector<Index> candidates;
  for (Index token = all.first; token < all.last; ++token) candidates.push_back(token);
  const std::vector<double> scores = key_differences(stream.keys, candidates);
  return {scores.begin() + (tokens.first - all.first), scores.begin() + (tokens.last - all.first)};
}

std::vector<double> expected(const ScoreParameters& p, const SharedContext& context,
                             PromptRange middle) {
  std::vector<double> scores =
      ExpectedAttention{kExpectedSinks, kExpectedFuture, true}.compute(context);
  scores.resize(middle.size());  // those before the window
  if (!p.value_norm) return scores;
  const ConstMatrix values = context.stream.values;
  for (Index j = 0; j < middle.size(); ++j) {
    const double* value = values.row(middle.first + j);
    scores[j] *= std::sqrt(canonical_dot(value, value, values.cols));
  }
  return scores;
}

std::vector<double> unchecked_scores(const ScoreParameters& p, const SharedContext& context) {
  const CompressedPrompt parts = scored_prompt(p, context.stream.shape, context.prompt);
  switch (p.score) {
    case TokenScore::kKnorm:
      return key_norm_scores(context.stream, parts.middle);
    case TokenScore::kKeydiff:
      return difference_scores(context.stream, parts.visible, parts.middle);
    case TokenScore::kExpectedAttention:
      return expected(p, context, parts.middle);
    case TokenScore::kSnapkv:
      break;
  }
  return observed_scores(p, WindowScores(p).compute(context), parts.middle);
}

}  // namespace

Index sinks_of(const ScoreParameters& p) {
  return p.score == TokenScore::kExpectedAttention ? kExpectedSinks : 0;
}

CompressedPrompt scored_prompt(const ScoreParameters& p, const StreamShape& shape, Index prompt) {
  return compressed_prompt(shape, prompt, sinks_of(p), p.window);
}

std::vector<double> token_scores(const ScoreParameters& p, const SharedContext& context) {
  std::vector<double> scores = unchecked_scores(p, context);
  const bool is_finite =
      std::all_of(scores.begin(), scores.end(), [](double x) { return std::isfinite(x); });
  if (!is_finite) throw CellError("scores of the prompt overflow");
  return scores;
}

std::vector<Field<ScoreParameters>> scored_fields() {
  std::vector<Field<ScoreParameters>> fields;
  for (const Field<ObservationParameters>& each : observation_fields()) {
    fields.emplace_back(each);
    if (each.parameter.name == "window") fields.back().at_least(0);
  }
  return fields;
}

Field<ScoreParameters> score_field() {
  return field("score", &ScoreParameters::score,
               {{"snapkv", TokenScore::kSnapkv},
                {"knorm", TokenScore::kKnorm},
                {"keydiff", TokenScore::kKeydiff},
                {"expected_attention", TokenScore::kExpectedAttention}},
               "score that ranks tokens: snapkv's, or another method's with its defaults; then "
               "kernel, pool and group have no effect and the window may be 0")
      .later();
}

std::optional<std::pair<std::string, std::string>> invalid_score(const ScoreParameters& p) {
  if (p.score == TokenScore::kSnapkv && p.window == 0) {
    return std::pair{"window", "must be at least 1 with score: snapkv, got 0"};
  }
  return invalid_observation(p);
}

std::optional<std::string> lacks_for_score(const ScoreParameters& p, const StreamShape& shape,
                                           Index prompt) {
  switch (p.score) {
    case TokenScore::kSnapkv:
      return lacks_prompt_queries(prompt - p.window, shape, prompt);
    case TokenScore::kExpectedAttention:
      return lacks_expected_queries(sinks_of(p), shape, prompt);
    case TokenScore::kKnorm:
    case TokenScore::kKeydiff:
      break;
  }
  return std::nullopt;
}

std::optional<std::string> cannot_score(const ScoreParameters& p, const StreamShape& shape,
                                        Index prompt) {
  if (p.score == TokenScore::kSnapkv) return cannot_observe(p, shape, prompt);
  if (auto reason = cannot_compress(p.budget, sinks_of(p), p.window, shape, prompt, "window"))
    return reason;
  if (keeps_whole_prompt(p.budget.of(prompt), shape, prompt)) return std::nullopt;
  return lacks_for_score(p, shape, prompt);
}

std::vector<double> key_norm_scores(const Stream& stream, PromptRange tokens) {
  std::vector<double> scores;
  for (Index token = tokens.first; token < tokens.last; ++token) {
    scores.push_back(-std::sqrt(
        canonical_dot(stream.keys.row(token), stream.keys.row(token), stream.keys.cols)));
  }
  return scores;
}

std::vector<double> key_differences(ConstMatrix keys, const std::vector<Index>& candidates) {
  const Index d = keys.cols;
  std::vector<double> norms;
  std::vector<double> mean(d, 0.0);
  for (const Index token : candidates) {
    const double* key = keys.row(token);
    norms.push_back(std::sqrt(canonical_dot(key, key, d)));
    if (!std::isfinite(norms.back())) throw CellError("squares of the prompt's keys overflow");
    const double floored = std::max(norms.back(), kUnitFloor);
    for (Index k = 0; k < d; ++k) mean[k] += key[k] / floored;
  }
  for (double& x : mean) x /= static_cast<double>(candidates.size());
  const double length =
      std::max(std::sqrt(canonical_dot(mean.data(), mean.data(), d)), kCosineFloor);
  std::vector<double> scores;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const double dot = canonical_dot(keys.row(candidates[c]), mean.data(), d);
    scores.push_back(-dot / (std::max(norms[c], kCosineFloor) * length));
  }
  return scores;
}

}  // namespace kvbench
