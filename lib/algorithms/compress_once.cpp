#include "algorithms/compress_once.hpp"

#include <algorithm>

namespace kvbench {

CompressOnce::CompressOnce(const Setting& setting, Index sinks, Index recent)
    : setting_(setting),
      prompt_(compressed_prompt(setting.stream.shape, setting.prompt, sinks, recent)) {}

void CompressOnce::extend(Index first, Index last) {
  if (last <= setting_.prompt) return;
  const Index lo = setting_.stream.shape.first_visible(last - 1);
  Index gone = 0;
  while (gone < sketch_.size() && sketch_[gone].token < lo) ++gone;
  sketch_.erase(0, gone);
  sketch_.add_exact(std::max(first, lo), last);
}

void CompressOnce::finish_prompt() {
  sketch_.add_exact(prompt_.visible.first, prompt_.middle.first);
  if (prompt_.middle.size() > 0) {
    if (keeps_whole_prompt(setting_.params, setting_.stream.shape, setting_.prompt)) {
      sketch_.add_exact(prompt_.middle.first, prompt_.middle.last);
    } else {
      compress_middle(prompt_.middle);
    }
  }
  sketch_.add_exact(prompt_.middle.last, prompt_.visible.last);
}

bool keeps_whole_prompt(const Params& params, const StreamShape& shape, Index prompt) {
  return params.has("budget") &&
         visible_prompt(shape, prompt).size() <= params.tokens("budget", prompt);
}

std::optional<std::string> cannot_compress(const Params& params, const StreamShape& shape,
                                           Index prompt, Index recent) {
  if (!params.has("budget")) return std::nullopt;
  if (auto reason = empty_budget(params, prompt)) return reason;
  if (keeps_whole_prompt(params, shape, prompt)) return std::nullopt;
  const Index budget = params.tokens("budget", prompt);
  const Index sinks = std::min(params.tokens("sinks", prompt), prompt);
  recent = std::min(recent, prompt - sinks);
  if (budget >= sinks + recent) return std::nullopt;
  return "budget of " + std::to_string(budget) +
         " tokens is smaller than sinks + recent = " + std::to_string(sinks + recent);
}

}  // namespace kvbench
