// Whole pages of tokens, and the same tokens in several KV heads, as paged caches need them: what
// becomes of the choice of any method that ranks a prompt once (AlgorithmFunctions::ranks).
//
// Source: pages of 16 tokens are blocks of vLLM (Kwon et al., arXiv 2309.06180), whose table of
// blocks is one for all KV heads of a layer.
#pragma once

#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/mechanisms/budget.hpp"

namespace kvbench {

enum class PageScore { kMean, kMax };

struct PagingParameters {
  Index pages = 1;  // tokens of a page
  PageScore page_score = PageScore::kMean;
  ReplayScope same_in = ReplayScope::kHead;
};

// pages, page_score, same_in.
const std::vector<Parameter>& paging_parameters();
bool is_paging_parameter(const std::string& name);

// Page k has the tokens [k size, (k + 1) size) of the sequence. A page competes if all its visible
// tokens are of the middle and the prompt fills it; all others stay: those with a sink or a recent
// token, and the last one if the prompt ends in it.
struct PromptPages {
  Index size = 1;
  PromptRange competing;  // tokens
  Index held = 0;         // tokens of the pages that stay

  PromptPages(const CompressedPrompt& prompt, Index size);

  // Number of competing pages that stay: as many whole ones as `budget` tokens leave room for.
  Index stay(Index budget) const;
  // The tokens of the competing pages that stay, ascending. `scores`: of tokens [first, ..), the
  // competing ones among them. The earlier of equal pages stays. Throws CellError if a score is
  // not a number.
  std::vector<Index> best(const std::vector<double>& scores, Index first, Index budget,
                          PageScore rule) const;
};

// Adds the scores less the least one, over the sum of these differences, to `sums`, one per score;
// nothing where all are equal.
void add_shares(const std::vector<double>& scores, std::vector<double>& sums);

}  // namespace kvbench
