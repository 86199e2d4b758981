// chunkkv: whole chunks of the prompt, ranked by the mean of snapkv's scores over their tokens and
// all KV heads of the layer; every head keeps the same chunks.
//
// Source: ChunkKV (Liu et al., arXiv 2502.00299) as kvpress 0.5.5 has it (ChunkKVPress around
// SnapKVPress).
//   chunk_length -> chunk, compression_ratio -> 1 - budget / P
// max(1, int(chunks budget / P)) chunks are kept, the last one shorter unless the chunk divides P.
// The tokens of the window have the largest score that any head has, and no other protection. A
// prompt shorter than one chunk is ranked token by token, head by head. Departures: of equal scores
// the earlier chunk is kept; a prompt of at most `budget` tokens is kept whole; on a sliding layer
// the prompt is what is still visible of it. Compared on the shipped dump in double precision by
// `tests/peers/run.sh`: kvpress keeps the same tokens with pool avg (3 settings, 9 heads),
// errors per row equal to 9 digits.
#include <algorithm>

#include "algorithms/mechanisms/layer_scores.hpp"

namespace kvbench::methods::chunkkv {
namespace {

struct Parameters : ScoreParameters {
  Index chunk = 20;

  Parameters() { window = 32; }
};

double largest_score(const LayerScores::Result& layer) {
  double largest = 0.0;
  for (const HeadScores& head : layer) {
    for (const double score : head.scores) largest = std::max(largest, score);
  }
  return largest;
}

// Scores of the visible prompt's tokens, the window's included.
std::vector<double> with_window(const HeadScores& head, Index window, double largest) {
  std::vector<double> scores = head.scores;
  scores.insert(scores.end(), window, largest);
  return scores;
}

std::vector<Index> kept_chunks(const Parameters& p, const LayerScores::Result& layer, Index first,
                               Index visible, Index budget) {
  const double largest = largest_score(layer);
  std::vector<double> sums(visible, 0.0);
  for (const HeadScores& head : layer) {
    const std::vector<double> scores = with_window(head, p.window, largest);
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += scores[j];
  }
  std::vector<double> means;
  for (Index begin = 0; begin < visible; begin += p.chunk) {
    const Index end = std::min(begin + p.chunk, visible);
    double sum = 0.0;
    for (Index j = begin; j < end; ++j) sum += sums[j];
    means.push_back(sum / (end - begin));
  }
  const auto chunks = std::ssize(means);
  std::vector<Index> tokens;
  for (const Index chunk : best_tokens(means, 0, std::max<Index>(1, chunks * budget / visible))) {
    const Index begin = chunk * p.chunk;
    for (Index j = begin; j < std::min(begin + p.chunk, visible); ++j) tokens.push_back(first + j);
  }
  return tokens;
}

std::unique_ptr<Algorithm> create_chunkkv(const Parameters& p, const CellContext& context) {
  const Index budget = p.budget.of(context.prompt);
  const PromptRange visible = visible_prompt(context.stream.shape, context.prompt);
  std::vector<Index> tokens;
  if (visible.size() > budget) {
    const auto& layer = context.shared.get(LayerScores(p));
    if (visible.size() >= p.chunk) {
      tokens = kept_chunks(p, layer, visible.first, visible.size(), budget);
    } else {
      const HeadScores& own = scores_of(layer, context.stream.id.kv_head);
      tokens = best_tokens(with_window(own, p.window, largest_score(layer)), visible.first, budget);
    }
  }
  const Index selected = visible.size() > budget ? std::ssize(tokens) : visible.size();
  return std::make_unique<ChosenOnce>(context, 0, 0, budget, std::move(tokens),
                                      Derived{{"chosen", selected}});
}

std::optional<std::string> cannot_chunk(const Parameters& p, const StreamShape& shape,
                                        Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const Index visible = visible_prompt(shape, prompt).size();
  if (visible <= p.budget.of(prompt)) return std::nullopt;
  if (visible <= p.window) {
    return "the window of " + std::to_string(p.window) + " rows leaves none of the " +
           std::to_string(visible) +
           " visible tokens of the prompt to rank; give a budget of at least " +
           std::to_string(visible) +
           (visible > 1 ? ", or a window of at most " + std::to_string(visible - 1) : "");
  }
  return lacks_prompt_queries(prompt - p.window, shape, prompt);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "chunkkv";
  d.title = "whole chunks, the same in all KV heads of a layer";
  d.source = "ChunkKV (Liu et al.)";
  d.derived = {{"chosen", "tokens of the prompt that are kept: those of whole chunks"}};
  d.parameters.add(observation_fields());
  d.parameters.add(
      {group_field(&Parameters::group),
       field("chunk", &Parameters::chunk, "tokens of a chunk").at_least(1).at_most(1e9)});
  d.parameters.add(observation_variant_fields());
  d.validate = invalid_observation;
  d.skip_reason = cannot_chunk;
  d.replay_scope = [](const Parameters&) { return ReplayScope::kLayer; };
  d.model_work = [](const Parameters& p, std::uint32_t) { return LayerScores(p); };
  d.only_appends = [](const Parameters&) { return true; };
  d.for_less_memory = "it keeps whole chunks; give budget as a number of tokens";
  d.create = create_chunkkv;
  return d;
}

}  // namespace kvbench::methods::chunkkv
