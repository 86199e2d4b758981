// Selection by scores of tokens, from its definition: what is held is a list that is cut to the
// budget.
#pragma once

#include <functional>
#include <vector>

#include "core/stream.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_rules.hpp"

namespace kvbench::test {

// The `count` best of tokens with these scores, in the order of the list; of equal scores the
// earlier one.
std::vector<Index> naive_best(const std::vector<Index>& tokens, const std::vector<Real>& scores,
                              Index count);

struct NaiveCut {
  Index budget = 0;
  Index sinks = 0;   // tokens below this stay
  Index recent = 0;  // the last ones of the list stay
};

// Scores of a list of tokens, in its order.
using NaiveScores = std::function<std::vector<Real>(const std::vector<Index>&)>;

// A list, ascending, cut to the budget: the same list if it fits.
std::vector<Index> naive_cut(const std::vector<Index>& held, const NaiveCut& cut,
                             const NaiveScores& scores);

// Tokens of the prompt that row `prompt` sees.
std::vector<Index> naive_visible_prompt(const Stream& stream, Index prompt);

// Kept at every decode row if the prompt left `kept` and all that comes later is kept.
KeptSets naive_then_append(const Stream& stream, Index prompt, const std::vector<Index>& kept);

// Cut at the end of the prompt; every decode token is kept.
KeptSets naive_once(const Stream& stream, Index prompt, const NaiveCut& cut,
                    const NaiveScores& scores);
// Cut there and after the answer of every row.
KeptSets naive_streaming_cut(const Stream& stream, Index prompt, const NaiveCut& cut,
                             const NaiveScores& scores);

}  // namespace kvbench::test
