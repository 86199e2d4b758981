// Methods that compress once, at the end of the prompt; every decode token is kept.
#pragma once

#include "algorithms/algorithm.hpp"
#include "algorithms/budget.hpp"

namespace kvbench {

class CompressOnce : public Algorithm {
 public:
  CompressOnce(const Setting& setting, Index sinks, Index recent);

  void extend(Index first, Index last) override;
  void finish_prompt() override;

 protected:
  // Adds the rows that stand for the middle of the prompt, ascending by token.
  virtual void compress_middle(PromptRange middle) = 0;

  const Setting setting_;
  const CompressedPrompt prompt_;
};

// Skips of a method with a budget: the budget resolves to 0, or is smaller than sinks + recent
// although the prompt does not fit into it.
std::optional<std::string> cannot_compress(const Params& params, const StreamShape& shape,
                                           Index prompt, Index recent);

// The visible prompt fits into the budget, so that it is kept whole.
bool keeps_whole_prompt(const Params& params, const StreamShape& shape, Index prompt);

}  // namespace kvbench
