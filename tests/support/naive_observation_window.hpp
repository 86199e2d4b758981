// SnapKV's scores and PyramidKV's budgets from their definitions, densely.
#pragma once

#include <string>
#include <vector>

#include "core/stream.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {

struct NaiveObservation {
  Index window = 32;
  Index kernel = 7;
  bool average = false;  // else the largest of the kernel
  std::string group = "mean";
  std::string reduce = "sum";  // over the rows: sum, mean, max
  bool pools_first = false;    // before query heads are combined
  bool weighs_rows = false;    // by the tokens that they see before their own
};

// Scores of the visible prompt tokens before the window, in order, before they are pooled.
std::vector<Real> naive_observation_scores(const Stream& stream, Index prompt,
                                           const NaiveObservation& rule);

// The same, pooled.
std::vector<Real> naive_pooled(const std::vector<Real>& scores, const NaiveObservation& rule);

// The scores of every variant, pooled.
std::vector<Real> naive_observed(const Stream& stream, Index prompt, const NaiveObservation& rule);

// The tokens that are kept at the end of the prompt when the `selected` best of `pooled` are kept
// besides the window.
std::vector<Index> naive_observation_kept(const Stream& stream, Index prompt, Index window,
                                          const std::vector<Real>& pooled, Index selected);

// Tokens that pyramidkv selects in a layer, next to its window. `length`: of the visible prompt.
Index naive_pyramid_selected(Index length, Index budget, Index window, Index beta, Index layers,
                             Index layer);

}  // namespace kvbench::test
