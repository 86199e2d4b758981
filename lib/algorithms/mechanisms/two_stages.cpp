#include "algorithms/mechanisms/two_stages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr double kFloor = 0.2;  // floor of CriticalAdaKV

// nu of a token.
double value_size(const StagedParameters& p, const Stream& stream, Index token) {
  if (p.norm == ValueSize::kWoL1) {
    const double mean = combine(GroupRule::kMean, stream.shape.heads_per_kv,
                                [&](int g) { return stream.wo_v_l1[g][token]; });
    if (mean >= 0.0) return mean;
    throw CellError("wo_v_l1 of the dump is negative at token " + std::to_string(token));
  }
  const double* v = stream.values.row(token);
  if (p.norm == ValueSize::kValueL2) return std::sqrt(canonical_dot(v, v, stream.shape.dv));
  double sum = 0.0;
  for (Index k = 0; k < stream.shape.dv; ++k) sum += std::fabs(v[k]);
  return sum;
}

// How many of a head's tokens stay, the window's among them, and how many of these by score alone.
struct Stages {
  Index budget = 0;
  Index by_score = 0;
};

Index part(Index tokens, double share) {
  return static_cast<Index>(static_cast<double>(tokens) * share);
}

// `exact`: tokens kept whatever their score.
Stages stages(const StagedParameters& p, Index budget, Index safe, Index exact) {
  Index first = part(budget, p.share);
  if (p.share > 0.0) first = std::max<Index>(1, first);
  first -= exact;
  if (p.first == FirstStage::kMiddle) first = part(budget - exact, p.share);
  return {budget, std::max({Index{0}, first, safe - exact})};
}

// The two stages over a head's scores; sums over the window's rows count as means.
StagedChoice kept_by_stages(const StagedParameters& p, const Stream& stream, const Stages& stages,
                            const std::vector<double>& sums, PromptRange middle, Index exact) {
  std::vector<Index> kept = best_tokens(sums, middle.first, stages.by_score);
  const bool are_sums = p.score == TokenScore::kSnapkv && p.reduce == Reduce::kSum;
  std::vector<double> products(sums.size());
  for (std::size_t j = 0; j < sums.size(); ++j) {
    const double score = are_sums ? sums[j] / p.window : sums[j];
    products[j] = (score + p.epsilon) * value_size(p, stream, middle.first + static_cast<Index>(j));
  }
  for (const Index token : kept) {
    products[token - middle.first] = -std::numeric_limits<double>::infinity();
  }
  const auto rest = stages.budget - exact - std::ssize(kept);
  for (const Index token : best_tokens(products, middle.first, rest)) kept.push_back(token);
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return {std::move(kept), stages.by_score};
}

}  // namespace

StagedChoice choose_in_stages(const StagedParameters& p, const Stream& stream, Index prompt,
                              const std::vector<double>& scores) {
  const CompressedPrompt parts = scored_prompt(p, stream.shape, prompt);
  const Index exact = parts.visible.size() - parts.middle.size();
  return kept_by_stages(p, stream, stages(p, p.budget.of(prompt), 0, exact), scores, parts.middle,
                        exact);
}

StagedChoice choose_in_stages_of_layer(const StagedParameters& p, const Stream& stream,
                                       Index prompt, const LayerScores::Result& layer,
                                       std::size_t head) {
  const CompressedPrompt parts = scored_prompt(p, stream.shape, prompt);
  const Index exact = parts.visible.size() - parts.middle.size();
  const Index budget = p.budget.of(prompt);
  const Index safe = std::max<Index>(1, part(budget, kFloor));
  const auto counts =
      counts_of_best(layer, std::ssize(layer) * (budget - exact), std::max<Index>(0, safe - exact));
  return kept_by_stages(p, stream, stages(p, exact + counts[head], safe, exact), layer[head].scores,
                        parts.middle, exact);
}

std::vector<Field<StagedParameters>> staged_fields() {
  using P = StagedParameters;
  return {
      field("share", &P::share,
            "fraction of the budget that scores alone decide; the rest goes by (score + "
            "epsilon) nu")
          .at_most(1),
      field("epsilon", &P::epsilon, "added to a score before it is multiplied by nu"),
      field("norm", &P::norm,
            {{"wo_l1", ValueSize::kWoL1},
             {"value_l1", ValueSize::kValueL1},
             {"value_l2", ValueSize::kValueL2}},
            "nu, the size of a token: 1-norm of what the output projection makes of its value, "
            "mean over the group (wo_v_l1 of the dump), or 1-norm or 2-norm of the value"),
      field("first", &P::first, {{"whole", FirstStage::kWhole}, {"middle", FirstStage::kMiddle}},
            "base of `share`: the whole budget, whose first tokens are the window, or the "
            "budget without the window")};
}

std::optional<std::string> cannot_stage(const StagedParameters& p, const StreamShape& shape,
                                        Index prompt) {
  if (p.norm == ValueSize::kWoL1 && !shape.wo_v_l1) {
    return "norm: wo_l1 needs the dataset wo_v_l1 of the layer, which the dump does not hold; "
           "norm: value_l1 needs nothing";
  }
  return cannot_score(p, shape, prompt);
}

}  // namespace kvbench
