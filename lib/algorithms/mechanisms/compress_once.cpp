#include "algorithms/mechanisms/compress_once.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

namespace kvbench {

CompressOnce::CompressOnce(const CellContext& context, Index sinks, Index recent,
                           std::optional<Index> budget)
    : context_(context),
      prompt_(compressed_prompt(context.stream.shape, context.prompt, sinks, recent)),
      keeps_whole_(budget && keeps_whole_prompt(*budget, context.stream.shape, context.prompt)) {}

void CompressOnce::extend(Index first, Index last) {
  if (last <= context_.prompt) return;
  const Index lo = context_.stream.shape.first_visible(last - 1);
  Index gone = 0;
  while (gone < sketch_.size() && sketch_[gone].token < lo) ++gone;
  sketch_.erase(0, gone);
  sketch_.add_exact(std::max(first, lo), last);
}

void CompressOnce::finish_prompt() {
  sketch_.add_exact(prompt_.visible.first, prompt_.middle.first);
  if (prompt_.middle.size() > 0) {
    if (keeps_whole_) {
      sketch_.add_exact(prompt_.middle.first, prompt_.middle.last);
    } else {
      compress_middle(prompt_.middle);
    }
  }
  sketch_.add_exact(prompt_.middle.last, prompt_.visible.last);
}

std::vector<double> CompressOnce::scores(PromptRange) const {
  throw std::logic_error("a method that has no scores was asked for them");
}

Index CompressOnce::selected() const {
  throw std::logic_error("a method that ranks nothing was asked how many tokens stay");
}

DerivedKey sinks_key() { return {"sinks", "first tokens of the sequence, kept exactly"}; }

DerivedKey recent_key() { return {"recent", "last tokens, kept exactly"}; }

DerivedKey middle_key() {
  return {"middle",
          "tokens of the prompt that are compressed: visible at its end, neither sinks "
          "nor recent"};
}

DerivedKey kept_of_middle_key() { return {"kept", "tokens of the middle that are kept"}; }

DerivedKey merged_key() {
  return {"merged",
          "evicted tokens, those of the prompt among them, whose values were added to others'"};
}

namespace {

struct AlwaysKept {
  Index sinks;
  Index recent;
};

// `recent`: the parameter's tokens. A prompt that the sinks nearly fill has fewer, and more of them
// with fewer sinks.
std::string refusal(Index budget, const AlwaysKept& always, Index recent,
                    const std::string& recent_name, Index enough) {
  const auto text = [](Index count) { return std::to_string(count); };
  const Index fewer = std::max<Index>(0, budget - recent);
  std::vector<std::string> kept, lower;
  if (always.sinks > 0) kept.push_back("sinks (" + text(always.sinks) + ")");
  if (always.recent > 0) kept.push_back(recent_name + " (" + text(always.recent) + ")");
  if (always.sinks > fewer) lower.push_back("sinks to " + text(fewer));
  if (recent > budget) lower.push_back(recent_name + " to " + text(budget));
  return fmt::format(
      "budget of {} tokens is smaller than {}, which are always kept; raise budget to {}, or lower "
      "{}",
      budget, fmt::join(kept, " and "), enough, fmt::join(lower, " and "));
}

}  // namespace

bool keeps_whole_prompt(Index budget, const StreamShape& shape, Index prompt) {
  return visible_prompt(shape, prompt).size() <= budget;
}

std::optional<KeptCounts> most_kept_once(Index budget, Index weighted, const StreamShape& shape,
                                         Index prompt) {
  if (shape.slides()) return std::nullopt;
  if (keeps_whole_prompt(budget, shape, prompt)) return exact_tokens(shape.tokens);
  return exact_tokens(budget + shape.tokens - prompt, std::max<Index>(0, weighted));
}

std::string smaller_budget(Index budget, Index sinks, Index recent,
                           const std::string& recent_name) {
  return refusal(budget, {sinks, recent}, recent, recent_name, sinks + recent);
}

std::string smaller_budget(Index budget, Index sinks, const RecentOf& recent_of, Index whole,
                           const std::string& recent_name) {
  const Index recent = recent_of(budget);
  Index enough = budget + 1;
  while (enough < whole && enough < sinks + recent_of(enough)) ++enough;
  return refusal(budget, {sinks, recent}, recent, recent_name, enough);
}

std::optional<std::string> cannot_compress(const TokenCount& budget, const TokenCount& sinks,
                                           Index recent, const StreamShape& shape, Index prompt,
                                           const std::string& recent_name) {
  if (auto reason = empty_budget(budget, prompt)) return reason;
  const Index tokens = budget.of(prompt);
  if (keeps_whole_prompt(tokens, shape, prompt)) return std::nullopt;
  const Index first = std::min(sinks.of(prompt), prompt);
  const Index last = std::min(recent, prompt - first);
  if (tokens >= first + last) return std::nullopt;
  return refusal(tokens, {first, last}, recent, recent_name, first + last);
}

std::optional<std::string> cannot_compress(const TokenCount& budget, const TokenCount& sinks,
                                           const RecentOf& recent_of, const StreamShape& shape,
                                           Index prompt) {
  const Index tokens = budget.of(prompt);
  auto reason = cannot_compress(budget, sinks, recent_of(tokens), shape, prompt);
  if (!reason || tokens == 0) return reason;
  return smaller_budget(tokens, std::min(sinks.of(prompt), prompt), recent_of,
                        visible_prompt(shape, prompt).size());
}

}  // namespace kvbench
