#include "algorithms/mechanisms/layer_scores.hpp"

#include <algorithm>

#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench {

LayerScores::Result LayerScores::compute(const ModelContext& context) const {
  Result result;
  context.for_each_stream([&](const Stream& stream) {
    throw_if_stopped();
    HeadScores& head = result.emplace_back();
    head.kv_head = stream.id.kv_head;
    head.middle = scored_prompt(rule, stream.shape, context.prompt).middle;
    if (head.middle.size() == 0) return;
    if (lacks_for_score(rule, stream.shape, context.prompt)) return;
    head.scores = token_scores(rule, {stream, context.prompt, context.kernels});
  });
  return result;
}

const HeadScores& scores_of(const LayerScores::Result& layer, int kv_head) {
  const auto found = std::find_if(layer.begin(), layer.end(),
                                  [&](const HeadScores& head) { return head.kv_head == kv_head; });
  if (found == layer.end()) throw CellError("its KV head is not part of the scope");
  return *found;
}

std::vector<Index> counts_of_best(const LayerScores::Result& layer, Index total, Index forced) {
  struct Place {
    double score;
    std::size_t head;
  };
  std::vector<Place> rest;
  std::vector<Index> counts;
  for (std::size_t h = 0; h < layer.size(); ++h) {
    std::vector<double> scores = layer[h].scores;
    const auto first = std::min<Index>(forced, std::ssize(scores));
    std::nth_element(scores.begin(), scores.begin() + first, scores.end(), std::greater<>());
    for (auto score = scores.begin() + first; score != scores.end(); ++score) {
      rest.push_back({*score, h});
    }
    counts.push_back(first);
    total -= first;
  }
  total = std::clamp<Index>(total, 0, std::ssize(rest));
  std::nth_element(rest.begin(), rest.begin() + total, rest.end(),
                   [](const Place& a, const Place& b) {
                     return a.score != b.score ? a.score > b.score : a.head < b.head;
                   });
  for (Index k = 0; k < total; ++k) ++counts[rest[k].head];
  return counts;
}

DerivedKey layer_tokens_key() {
  return {"layer_tokens", "tokens of the prompt that the KV heads of the layer keep, together"};
}

}  // namespace kvbench
