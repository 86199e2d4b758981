#include "algorithms/mechanisms/attention_evictor.hpp"

#include <algorithm>

#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "kernels/packed_keys.hpp"
#include "numerics/canonical.hpp"

namespace kvbench {

void AttentionEvictor::keep(Index token) {
  sketch_.add(SketchRow::exact(token));
  kept(token);
}

void AttentionEvictor::drop(Index place) {
  sketch_.erase(place);
  dropped(place);
}

void AttentionEvictor::finish_prompt() {
  const StreamShape& shape = context_.stream.shape;
  const PromptRange visible = visible_prompt(shape, context_.prompt);
  if (!keeps_whole_prompt(budget_, shape, context_.prompt)) {
    for (const Index token : best_of_prompt()) keep(token);
    return;
  }
  for (Index token = visible.first; token < visible.last; ++token) keep(token);
}

void AttentionEvictor::extend(Index first, Index last) {
  if (last <= context_.prompt) return;
  for (Index token = first; token < last; ++token) {
    keep(token);
    while (sketch_[0].token < context_.stream.shape.first_visible(token)) drop(0);
  }
}

void AttentionEvictor::answered(const RowLogits& row) {
  shares_.resize(row.heads_per_kv);
  for (int g = 0; g < row.heads_per_kv; ++g) {
    std::vector<double>& x = shares_[g];
    x.clear();
    for (const SketchRow& each : sketch_.rows()) x.push_back(logit(row, g, each));
    softmax_with_sink(x.data(), x.size(), row.sink(g));
  }
  attended(row.row, shares_);
  if (sketch_.size() <= budget_) return;
  const Index place = worst(row.row);
  before_eviction(place);
  drop(place);
}

double AttentionEvictor::logit(const RowLogits& row, int g, const SketchRow& of) const {
  if (of.own_key < 0) return row.logit(g, of.token);
  const StreamShape& shape = context_.stream.shape;
  const std::vector<double>& key = sketch_.own_keys[of.own_key];
  const double x =
      shape.scale * canonical_dot(context_.stream.query(g, row.row), key.data(), shape.d);
  double logit = shape.softcap > 0.0 ? canonical_softcap(x, shape.softcap) : x;
  add_alibi(context_.stream, g, row.row, Index{of.token}, Index{of.token} + 1, &logit);
  return logit;
}

KeptCounts most_kept_by_attention(const TokenCount& budget, Index numbers_per_token,
                                  const StreamShape& shape, Index prompt) {
  const Index tokens = std::min(budget.of(prompt) + 1, most_visible(shape));
  return exact_tokens(tokens, tokens * numbers_per_token);
}

}  // namespace kvbench
