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
};

// Pooled scores of the visible prompt tokens before the window, in order.
std::vector<Real> naive_observation_scores(const Stream& stream, Index prompt,
                                           const NaiveObservation& rule);

// What is held at the end of the prompt when `selected` tokens are kept beside the window.
std::vector<Index> naive_observation_kept(const Stream& stream, Index prompt,
                                          const NaiveObservation& rule, Index selected);

// Tokens that pyramidkv selects in a layer, beside its window. `length`: of the visible prompt.
Index naive_pyramid_selected(Index length, Index budget, Index window, Index beta, Index layers,
                             Index layer);

}  // namespace kvbench::test
