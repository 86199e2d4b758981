// Numbers of tokens: what budget, sinks and recent mean on a stream, and when they cannot be met.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"

namespace kvbench {

// The part of the prompt that is still visible when decoding starts: tokens [first, last).
struct PromptRange {
  Index first = 0;
  Index last = 0;
  Index size() const { return last - first; }
};
PromptRange visible_prompt(const StreamShape& shape, Index prompt);

// Methods that compress once: sinks = min(sinks, P), recent = min(recent, P - sinks), P being the
// whole prompt; the middle is what lies between them and is still visible.
struct CompressedPrompt {
  Index sinks = 0;
  Index recent = 0;
  PromptRange visible;
  PromptRange middle;
};
CompressedPrompt compressed_prompt(const StreamShape& shape, Index prompt, Index sinks,
                                   Index recent);

// "budget resolves to 0 tokens", where it does.
std::optional<std::string> empty_budget(const Params& params, Index prompt);

// Why a method that summarises an unbounded stream does not run on a sliding layer.
std::optional<std::string> cannot_forget(const std::string& id, const StreamShape& shape);

// Table rows that several algorithms share.
Parameter budget_parameter();
Parameter sinks_parameter(Index fallback);
Parameter recent_parameter(Value fallback, std::vector<std::string> words = {});
Parameter group_parameter();
// One of `words`, the first of which is the default.
Parameter choice_parameter(std::string name, std::vector<std::string> words, std::string doc);

}  // namespace kvbench
