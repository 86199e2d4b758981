// Scores of a prompt's tokens in all KV heads of a layer, and what follows from looking at them
// together: the mechanism of adakv, chunkkv and criticalkv; cake, which looks at all layers, has
// its scores by head as well.
#pragma once

#include <utility>
#include <vector>

#include "algorithms/mechanisms/token_scores.hpp"

namespace kvbench {

// Scores of a KV head's tokens [middle.first, middle.last), before the window; empty where the cell
// is skipped.
struct HeadScores {
  int kv_head = 0;
  PromptRange middle;
  std::vector<double> scores;  // pooled; of LayerScores: sums over the rows of the window
};

// Model work: tokens' scores in every head of the layer, which serve every budget.
struct LayerScores {
  ScoreParameters rule;  // its budget is 0

  explicit LayerScores(const ScoreParameters& p) : rule(p) { rule.budget = 0; }

  using Result = std::vector<HeadScores>;  // by KV head
  Result compute(const ModelContext& context) const;
  static double bytes(const ScopeSize& size) {
    return 8.0 * static_cast<double>(2 * size.heads()) * static_cast<double>(size.prompt);
  }
  auto operator<=>(const LayerScores&) const = default;
};

// The scores of one head of the layer.
const HeadScores& scores_of(const LayerScores::Result& layer, int kv_head);

// How many of the layer's `total` best scores each head has, if the best `forced` of every head
// count among them. Equal scores rank by KV head, the lower first, then by token.
std::vector<Index> counts_of_best(const LayerScores::Result& layer, Index total, Index forced);

// Keeps what was chosen of a prompt's middle besides its first `sinks` and last `recent` tokens.
class ChosenOnce final : public CompressOnce {
 public:
  // `chosen`: tokens of the middle, ascending; those of a prompt that fits into `whole` tokens are
  // all kept.
  ChosenOnce(const CellContext& context, Index sinks, Index recent, Index whole,
             std::vector<Index> chosen, Derived derived)
      : CompressOnce(context, sinks, recent, whole),
        chosen_(std::move(chosen)),
        derived_(std::move(derived)) {}

  // Keeps the best `selected` of the middle by these scores, [middle].
  ChosenOnce(const CellContext& context, Index sinks, Index recent, Index whole,
             const std::vector<double>& scores, Index selected, Derived derived)
      : CompressOnce(context, sinks, recent, whole),
        chosen_(best_tokens(scores, prompt_.middle.first, selected)),
        scores_(scores),
        selected_(selected),
        derived_(std::move(derived)) {}

  Derived derived() const override { return derived_; }
  std::vector<double> scores(PromptRange) const override { return scores_; }
  Index selected() const override { return selected_; }

 protected:
  void compress_middle(PromptRange) override {
    for (const Index token : chosen_) sketch_.add(SketchRow::exact(token));
  }

 private:
  std::vector<Index> chosen_;
  std::vector<double> scores_;  // none: tokens were chosen otherwise
  Index selected_ = 0;
  Derived derived_;
};

// `layer_tokens` of derived values.
DerivedKey layer_tokens_key();

}  // namespace kvbench
