#include "algorithms/mechanisms/budget.hpp"

#include <algorithm>

namespace kvbench {

PromptRange visible_prompt(const StreamShape& shape, Index prompt) {
  return {std::min(shape.first_visible(prompt), prompt), prompt};
}

CompressedPrompt compressed_prompt(const StreamShape& shape, Index prompt, Index sinks,
                                   Index recent) {
  CompressedPrompt out;
  out.sinks = std::min(sinks, prompt);
  out.recent = std::min(recent, prompt - out.sinks);
  out.visible = visible_prompt(shape, prompt);
  out.middle.last = std::max(prompt - out.recent, out.visible.first);
  out.middle.first = std::clamp(out.sinks, out.visible.first, out.middle.last);
  return out;
}

Index most_visible(const StreamShape& shape) { return shape.reach(); }

KeptCounts exact_tokens(Index tokens, Index bookkeeping) {
  KeptCounts kept = whole_tokens(tokens);
  kept.bookkeeping = bookkeeping;
  return kept;
}

std::optional<std::string> empty_budget(const TokenCount& budget, Index prompt) {
  if (budget.of(prompt) > 0) return std::nullopt;
  return "budget " + to_string(budget.value()) + " of " + std::to_string(prompt) +
         " prompt tokens resolves to 0 tokens; give a budget of at least 1 token";
}

std::optional<std::string> no_rolling_token(Index budget, Index sinks) {
  if (budget > sinks) return std::nullopt;
  return "budget of " + std::to_string(budget) + " tokens leaves no rolling token besides " +
         std::to_string(sinks) + " sinks; give a budget of at least " + std::to_string(sinks + 1) +
         ", or at most " + std::to_string(budget - 1) + " sinks";
}

std::optional<std::string> cannot_forget(const std::string& id, const StreamShape& shape) {
  if (!shape.slides()) return std::nullopt;
  if (shape.chunk > 0) {
    return "the layer attends in chunks of " + std::to_string(shape.chunk) + " tokens, and " + id +
           " cannot drop those of earlier chunks";
  }
  return "the layer has a sliding window of " + std::to_string(shape.window) + " tokens, and " +
         id + " cannot drop tokens that leave the window";
}

std::optional<std::string> lacks_queries(Index first, const StreamShape& shape) {
  if (shape.first_query <= first) return std::nullopt;
  return "needs the queries of rows " + std::to_string(first) + " on, but the dump has only rows " +
         std::to_string(shape.first_query) + " to " + std::to_string(shape.tokens - 1);
}

std::optional<std::string> lacks_prompt_queries(Index first, const StreamShape& shape,
                                                Index prompt) {
  if (shape.first_query <= first) return std::nullopt;
  return "needs the queries of prompt rows " + std::to_string(first) + " to " +
         std::to_string(prompt - 1) + ", but the dump has only rows from " +
         std::to_string(shape.first_query) + " on";
}

}  // namespace kvbench
