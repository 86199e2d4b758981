// Scores of a prompt's tokens that other methods than their own rank by: what `score` of adakv and
// criticalkv names.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/observation_window.hpp"

namespace kvbench {

// snapkv's, by the observation window's parameters; or another method's with its defaults: knorm's
// (minus the norm of the key), keydiff's, expected_attention's.
enum class TokenScore { kSnapkv, kKnorm, kKeydiff, kExpectedAttention };

struct ScoreParameters : ObservationParameters {
  TokenScore score = TokenScore::kSnapkv;
  bool value_norm = true;  // value norms of expected_attention; no parameter of its own

  auto operator<=>(const ScoreParameters&) const = default;
};

// observation_fields(), of which a window of 0 goes with other scores than snapkv's, and `score`.
std::vector<Field<ScoreParameters>> scored_fields();
Field<ScoreParameters> score_field();

// Tokens kept whatever their score: the first tokens that the score's own method keeps, and the
// window. The others are the middle.
CompressedPrompt scored_prompt(const ScoreParameters& p, const StreamShape& shape, Index prompt);
Index sinks_of(const ScoreParameters& p);

// Scores of the tokens of scored_prompt's middle. Throws CellError if they overflow.
std::vector<double> token_scores(const ScoreParameters& p, const SharedContext& context);

// Shared work: the same of one KV head, for every budget.
struct PromptTokenScores {
  ScoreParameters rule;  // its budget is 0

  explicit PromptTokenScores(const ScoreParameters& p) : rule(p) { rule.budget = 0; }

  using Result = std::vector<double>;
  Result compute(const SharedContext& context) const { return token_scores(rule, context); }
  auto operator<=>(const PromptTokenScores&) const = default;
};

// Functions of AlgorithmDescription.
std::optional<std::pair<std::string, std::string>> invalid_score(const ScoreParameters& p);
// Data that a score needs and the dump lacks.
std::optional<std::string> lacks_for_score(const ScoreParameters& p, const StreamShape& shape,
                                           Index prompt);
std::optional<std::string> cannot_score(const ScoreParameters& p, const StreamShape& shape,
                                        Index prompt);

// Minus the norm of each key of `tokens`.
std::vector<double> key_norm_scores(const Stream& stream, PromptRange tokens);

// Minus the cosine of each candidate's key and the mean of the candidates' unit keys. Throws
// CellError if squares overflow.
std::vector<double> key_differences(ConstMatrix keys, const std::vector<Index>& candidates);

}  // namespace kvbench
