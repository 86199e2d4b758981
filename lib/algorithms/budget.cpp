#include "algorithms/budget.hpp"

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

std::optional<std::string> empty_budget(const Params& params, Index prompt) {
  if (!params.has("budget") || params.tokens("budget", prompt) > 0) return std::nullopt;
  return "budget " + to_string(params.at("budget")) + " of " + std::to_string(prompt) +
         " prompt tokens resolves to 0 tokens";
}

std::optional<std::string> cannot_forget(const std::string& id, const StreamShape& shape) {
  if (!shape.slides()) return std::nullopt;
  return "the layer has a sliding window of " + std::to_string(shape.window) + " tokens, and " +
         id + " summarises an unbounded stream: it cannot forget";
}

Parameter budget_parameter() {
  Parameter p;
  p.name = "budget";
  p.kind = Parameter::Kind::kTokens;
  p.minimum = 1;
  p.doc = "tokens held, or a fraction of the prompt";
  return p;
}

Parameter sinks_parameter(Index fallback) {
  Parameter p;
  p.name = "sinks";
  p.kind = Parameter::Kind::kTokens;
  p.fallback = Value{fallback};
  p.doc = "first tokens of the sequence, held exactly";
  return p;
}

Parameter recent_parameter(Value fallback, std::vector<std::string> words) {
  Parameter p;
  p.name = "recent";
  p.kind = Parameter::Kind::kTokens;
  p.fallback = std::move(fallback);
  p.words = std::move(words);
  p.doc = "last tokens, held exactly";
  return p;
}

Parameter group_parameter() {
  return choice_parameter(
      "group", {"mean", "max", "sum"},
      "how the scores of the query heads of a KV head are combined for ranking");
}

Parameter choice_parameter(std::string name, std::vector<std::string> words, std::string doc) {
  Parameter p;
  p.name = std::move(name);
  p.kind = Parameter::Kind::kChoice;
  p.fallback = Value{words.front()};
  p.words = std::move(words);
  p.doc = std::move(doc);
  return p;
}

}  // namespace kvbench
