// Methods that compress once, at the end of the prompt; every decode token is kept.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench {

class CompressOnce : public Algorithm {
 public:
  // With a budget, a prompt that fits into it is kept whole.
  CompressOnce(const CellContext& context, Index sinks, Index recent,
               std::optional<Index> budget = std::nullopt);

  void extend(Index first, Index last) override;
  void finish_prompt() override;

  const CompressedPrompt& prompt() const { return prompt_; }
  bool keeps_whole() const { return keeps_whole_; }
  // A score of each token of the middle, higher is better, and how many of them stay, if the prompt
  // is not kept whole. Methods without AlgorithmFunctions::ranks throw std::logic_error.
  virtual std::vector<double> scores(PromptRange middle) const;
  virtual Index selected() const;
  // Whether what stays is weighted to stand for all of the middle.
  virtual bool stands_for_all() const { return false; }

 protected:
  // Adds the rows that stand for the middle of the prompt, ascending by token.
  virtual void compress_middle(PromptRange middle) = 0;

  const CellContext context_;
  const CompressedPrompt prompt_;
  const bool keeps_whole_;
};

// Derived keys of a compressed prompt's parts: sinks, recent and middle.
DerivedKey sinks_key();
DerivedKey recent_key();
DerivedKey middle_key();
DerivedKey kept_of_middle_key();  // `kept`
// Derived key of methods that merge what they drop.
DerivedKey merged_key();

// The visible prompt fits into the budget.
bool keeps_whole_prompt(Index budget, const StreamShape& shape, Index prompt);

// The most that is kept, `weighted` tokens of the middle with a number besides; none on a sliding
// layer, where it depends on which tokens were kept.
std::optional<KeptCounts> most_kept_once(Index budget, Index weighted, const StreamShape& shape,
                                         Index prompt);

// "budget of B tokens is smaller than sinks + recent", and values that work.
std::string smaller_budget(Index budget, Index sinks, Index recent,
                           const std::string& recent_name = "recent");

// Last tokens that are always kept, by the budget.
using RecentOf = std::function<Index(Index budget)>;

// The same where recent tokens follow from the budget. A budget of `whole` tokens keeps every
// token.
std::string smaller_budget(Index budget, Index sinks, const RecentOf& recent_of, Index whole,
                           const std::string& recent_name = "recent");

// Skips of a method with a budget: the budget resolves to 0, or is smaller than sinks + recent
// although the prompt does not fit into it.
std::optional<std::string> cannot_compress(const TokenCount& budget, const TokenCount& sinks,
                                           Index recent, const StreamShape& shape, Index prompt,
                                           const std::string& recent_name = "recent");
std::optional<std::string> cannot_compress(const TokenCount& budget, const TokenCount& sinks,
                                           const RecentOf& recent_of, const StreamShape& shape,
                                           Index prompt);

}  // namespace kvbench
