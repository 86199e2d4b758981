// streaming_llm: the first `sinks` tokens and the last budget - sinks, rolling with the row.
//
// Source: attention sinks (Xiao et al., StreamingLLM).
//   sink tokens -> sinks, cache size -> budget
// `positions: cache` is StreamingLLM's own definition; most other codes, and so the default, attend
// at the positions of the sequence.
// Compared on the shipped dump: streaming-llm 2e50426 (StartRecentKVCache, asked to make room
// before every token), once, holds the same tokens at every row, and its attention with shifted
// positions (pos_shift) answers as `positions: cache` does: errors equal to 12 digits. kvpress
// 0.5.5 (StreamingLLMPress; by `tests/peers/run.sh`) and KVCache-Factory c97f9d7 choose once,
// at the end of the prompt, and append: the same at the first decoded token, more tokens after it.
#include <algorithm>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/positions.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::streaming_llm {
namespace {

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 4;
  Positions positions = Positions::kOriginal;
};

class StreamingLlm final : public Algorithm {
 public:
  StreamingLlm(const Parameters& p, const CellContext& context)
      : shape_(context.stream.shape),
        sinks_(p.sinks.of(context.prompt)),
        rolling_(p.budget.of(context.prompt) - sinks_) {
    sketch_.cache_positions = p.positions == Positions::kCache;
  }

  void extend(Index, Index last) override {
    const Index lo = shape_.first_visible(last - 1);
    const Index begin = std::max({lo, sinks_, last - rolling_});
    if (end_ < sinks_) {
      sketch_.clear();
      sketch_.add_exact(lo, std::min(sinks_, last));
      sketch_.add_exact(begin, last);
    } else {
      const Index left = std::max<Index>(0, sinks_ - lo);  // number of sinks left
      sketch_.erase(0, sketch_.size() - (end_ - begin_) - left);
      sketch_.erase(left, left + std::min(begin, end_) - begin_);
      sketch_.add_exact(std::max(begin, end_), last);
    }
    begin_ = std::min(begin, last);
    end_ = last;
  }

 private:
  StreamShape shape_;
  Index sinks_;
  Index rolling_;
  Index begin_ = 0;  // first of the rolling tokens
  Index end_ = 0;
};

// Tokens kept at row i.
Index held_at(const Parameters& p, const StreamShape& shape, Index prompt, Index i) {
  const Index lo = shape.first_visible(i);
  const Index sinks = p.sinks.of(prompt);
  const Index rolling = p.budget.of(prompt) - sinks;
  return std::max<Index>(0, std::min(sinks, i + 1) - lo) +
         std::max<Index>(0, i + 1 - std::max({lo, sinks, i + 1 - rolling}));
}

// Grows until the window is full, does not while sinks leave it, and may grow after that.
KeptCounts most_kept(const Parameters& p, const StreamShape& shape, Index prompt) {
  const Index last = shape.tokens - 1;
  const Index full = std::clamp(most_visible(shape) - 1, prompt, last);
  return exact_tokens(std::max(held_at(p, shape, prompt, full), held_at(p, shape, prompt, last)));
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "streaming_llm";
  d.title = "the first tokens (attention sinks) and the last ones";
  d.source = "StreamingLLM (Xiao et al.)";
  d.answers_prompt_rows = true;
  d.parameters = {budget_field(&Parameters::budget).required(), sinks_field(&Parameters::sinks),
                  positions_field(&Parameters::positions)};
  d.not_rows = [](const Parameters& p) { return not_rows(p.positions); };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(p.budget, prompt)) return reason;
    if (auto reason = no_rope(p.positions, shape)) return reason;
    return no_rolling_token(p.budget.of(prompt), p.sinks.of(prompt));
  };
  d.most_kept = most_kept;
  d.not_stored = [](const Parameters& p) { return not_stored(p.positions); };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<StreamingLlm>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::streaming_llm
