// Selection of a prompt's tokens in two stages: part of the budget goes to the best scores, the
// rest to the best products of score and the size of a token's value. The mechanism of criticalkv,
// whose file names the source; grkv changes what it keeps.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/layer_scores.hpp"

namespace kvbench {

// The size nu of a token, for StagedParameters::norm.
enum class ValueSize { kWoL1, kValueL1, kValueL2 };
// Base of StagedParameters::share.
enum class FirstStage { kWhole, kMiddle };

struct StagedParameters : ScoreParameters {
  double share = 0.5;
  double epsilon = 1e-4;
  ValueSize norm = ValueSize::kWoL1;
  FirstStage first = FirstStage::kWhole;

  StagedParameters() {
    window = 32;
    value_norm = false;  // it has its own
  }
  auto operator<=>(const StagedParameters&) const = default;
};

// share, epsilon, norm, first.
std::vector<Field<StagedParameters>> staged_fields();

// Tokens of the middle that stay, ascending, and how many of a KV head's tokens their scores alone
// keep.
struct StagedChoice {
  std::vector<Index> kept;
  Index by_score = 0;
};

// The budget of each head. `scores`: of the middle's tokens, sums over the window's rows for
// snapkv's score. Throws CellError if the dump's norms are negative.
StagedChoice choose_in_stages(const StagedParameters& p, const Stream& stream, Index prompt,
                              const std::vector<double>& scores);

// The budgets of a layer's heads shared out by their scores, as CriticalAdaKV does; `head`: its
// place in `layer`.
StagedChoice choose_in_stages_of_layer(const StagedParameters& p, const Stream& stream,
                                       Index prompt, const LayerScores::Result& layer,
                                       std::size_t head);

// Functions of AlgorithmDescription.
std::optional<std::string> cannot_stage(const StagedParameters& p, const StreamShape& shape,
                                        Index prompt);

}  // namespace kvbench
