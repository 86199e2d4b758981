// Numbers of tokens: what budget, sinks and recent mean on a stream, and when they cannot be met.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/stream.hpp"
#include "parameters/parameter_table.hpp"
#include "sketch/sketch.hpp"

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

// Parts of AlgorithmFunctions::most_kept.
Index most_visible(const StreamShape& shape);  // tokens that a row sees: min(n, W)
KeptCounts exact_tokens(Index tokens, Index bookkeeping = 0);

// "budget resolves to 0 tokens", if it does.
std::optional<std::string> empty_budget(const TokenCount& budget, Index prompt);

// AlgorithmFacts::for_less_memory of methods that evict nothing.
inline constexpr const char* kKeepsEveryToken =
    "it keeps every token and bounds the tokens that a row reads; compare it by traffic.fraction";

// Why a window that rolls behind sinks is empty.
std::optional<std::string> no_rolling_token(Index budget, Index sinks);

// Why a method that summarises an unbounded stream does not run on a sliding layer.
std::optional<std::string> cannot_forget(const std::string& id, const StreamShape& shape);

// Rows from `first` on whose queries a method needs and the dump does not have.
std::optional<std::string> lacks_queries(Index first, const StreamShape& shape);
// As above, of prompt rows.
std::optional<std::string> lacks_prompt_queries(Index first, const StreamShape& shape,
                                                Index prompt);

// Table rows that several algorithms share. T: TokenCount, or an optional one.
template <class P, class T>
Field<P> budget_field(T P::* member) {
  return field("budget", member, "tokens kept, or a fraction of the prompt")
      .at_least(1)
      .or_memory();
}

template <class P>
Field<P> sinks_field(TokenCount P::* member) {
  return field("sinks", member, "first tokens of the sequence; always kept");
}

template <class P, class T>
Field<P> recent_field(T P::* member, std::string doc = "last tokens; always kept") {
  return field("recent", member, std::move(doc));
}

}  // namespace kvbench
