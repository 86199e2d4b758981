#include "support/naive_ranking.hpp"

#include <algorithm>
#include <numeric>

namespace kvbench::test {

std::vector<Index> naive_best(const std::vector<Index>& tokens, const std::vector<Real>& scores,
                              Index count) {
  std::vector<std::size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), static_cast<std::size_t>(std::max<Index>(0, count))));
  std::sort(order.begin(), order.end());
  std::vector<Index> best;
  for (const std::size_t place : order) best.push_back(tokens[place]);
  return best;
}

std::vector<Index> naive_cut(const std::vector<Index>& held, const NaiveCut& cut,
                             const NaiveScores& scores) {
  if (std::ssize(held) <= cut.budget) return held;
  const std::vector<Real> all = scores(held);
  std::vector<Index> kept;
  std::vector<Index> others;
  std::vector<Real> of_others;
  for (std::size_t place = 0; place < held.size(); ++place) {
    const bool is_recent = static_cast<Index>(held.size() - place) <= cut.recent;
    if (held[place] < cut.sinks || is_recent) {
      kept.push_back(held[place]);
    } else {
      others.push_back(held[place]);
      of_others.push_back(all[place]);
    }
  }
  const Index left = cut.budget - std::ssize(kept);
  for (const Index token : naive_best(others, of_others, left)) kept.push_back(token);
  std::sort(kept.begin(), kept.end());
  return kept;
}

std::vector<Index> naive_visible_prompt(const Stream& stream, Index prompt) {
  std::vector<Index> visible;
  for (Index j = stream.shape.first_visible(prompt); j < prompt; ++j) visible.push_back(j);
  return visible;
}

namespace {

void drop_invisible(const Stream& stream, Index row, std::vector<Index>& held) {
  std::erase_if(held, [&](Index token) { return token < stream.shape.first_visible(row); });
}

}  // namespace

KeptSets naive_then_append(const Stream& stream, Index prompt, const std::vector<Index>& kept) {
  KeptSets sets;
  std::vector<Index> held = kept;
  for (Index row = prompt; row < stream.shape.tokens; ++row) {
    drop_invisible(stream, row, held);
    held.push_back(row);
    sets.push_back(held);
  }
  return sets;
}

KeptSets naive_once(const Stream& stream, Index prompt, const NaiveCut& cut,
                    const NaiveScores& scores) {
  return naive_then_append(stream, prompt,
                           naive_cut(naive_visible_prompt(stream, prompt), cut, scores));
}

KeptSets naive_streaming_cut(const Stream& stream, Index prompt, const NaiveCut& cut,
                             const NaiveScores& scores) {
  KeptSets sets;
  std::vector<Index> held = naive_cut(naive_visible_prompt(stream, prompt), cut, scores);
  for (Index row = prompt; row < stream.shape.tokens; ++row) {
    drop_invisible(stream, row, held);
    held.push_back(row);
    sets.push_back(held);
    held = naive_cut(held, cut, scores);
  }
  return sets;
}

}  // namespace kvbench::test
