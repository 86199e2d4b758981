// chunkkv: whole chunks of a layer, against the rule written out.
#include <doctest/doctest.h>

#include <algorithm>

#include "support/kept_of_prompt.hpp"
#include "support/layer_of_streams.hpp"
#include "support/naive_observation_window.hpp"
#include "support/weighted_tokens.hpp"

namespace kvbench::test {
namespace chunkkv_test {

using Sets = std::vector<std::vector<Index>>;

Given chunks(Index budget, Index window, Index chunk) {
  return {{"budget", count_of(budget)},
          {"window", count_of(window)},
          {"kernel", count_of(3)},
          {"chunk", count_of(chunk)}};
}

// The rule, with chunks given as pairs (mean, first token) and sorted as such.
std::vector<Index> naive_chunks(const LayerOfStreams& layer, Index prompt, Index budget,
                                Index window, Index chunk) {
  const NaiveObservation rule{.window = window, .kernel = 3};
  std::vector<std::vector<Real>> scores;
  Real largest = 0;
  for (const Stream* stream : layer.streams) {
    scores.push_back(naive_pooled(naive_observation_scores(*stream, prompt, rule), rule));
    largest = std::max(largest, *std::max_element(scores.back().begin(), scores.back().end()));
  }
  const Index visible = std::ssize(scores[0]) + window;
  const Index first = prompt - visible;
  for (auto& head : scores) head.resize(visible, largest);
  std::vector<std::pair<Real, Index>> ranked;
  for (Index begin = 0; begin < visible; begin += chunk) {
    const Index end = std::min(visible, begin + chunk);
    Real sum = 0;
    for (const auto& head : scores) {
      for (Index j = begin; j < end; ++j) sum += head[j];
    }
    ranked.emplace_back(sum / static_cast<Real>(end - begin), begin);
  }
  const auto wanted =
      static_cast<std::size_t>(std::max<Index>(1, std::ssize(ranked) * budget / visible));
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Index> kept;
  for (std::size_t c = 0; c < wanted; ++c) {
    const Index begin = ranked[c].second;
    for (Index j = begin; j < std::min(visible, begin + chunk); ++j) kept.push_back(first + j);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST_CASE("chunkkv, worked: chunks of three by their mean, the window as the largest score") {
  // Tokens weigh 1 1 1 | 9 1 2 | 5 5 5 | 1 and row 9 alone is the window, without pooling. Means
  // are 1, 4, 5 and that of the window, as large as the largest token: 9. int(4 budget / 10): 1 of
  // budget 3 and 4, 2 of budget 5 to 7, 3 of 8 and 9.
  const auto owned = weighted_tokens({1, 1, 1, 9, 1, 2, 5, 5, 5, 1, 1});
  const auto kept = [&](Index budget) {
    Given given = chunks(budget, 1, 3);
    given[2].second = count_of(1);
    return kept_of_prompt("chunkkv", owned->stream, 10, given);
  };
  CHECK(kept(1) == std::vector<Index>{9});
  CHECK(kept(4) == std::vector<Index>{9});
  CHECK(kept(5) == std::vector<Index>{6, 7, 8, 9});
  CHECK(kept(8) == std::vector<Index>{3, 4, 5, 6, 7, 8, 9});
  CHECK(kept(10) == std::vector<Index>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("chunkkv keeps what the rule written out keeps, the same in every head") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 90, .d = 5, .dv = 2, .heads_per_kv = 3},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 50},
      {.tokens = 90, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 2},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 36}};
  for (const StreamSpec& spec : specs) {
    for (const int heads : {1, 3}) {
      const LayerOfStreams layer(spec, heads);
      for (const Index budget : {1, 16, 30, 48}) {
        if (spec.chunk > 0 && budget > 34)
          continue;  // a row sees fewer tokens than that: none is dropped
        for (const Index window : {1, 8}) {
          for (const Index chunk : {1, 7, 10}) {
            CAPTURE(spec.window);
            CAPTURE(heads);
            CAPTURE(budget);
            CAPTURE(window);
            CAPTURE(chunk);
            const auto expected = naive_chunks(layer, 70, budget, window, chunk);
            for (const auto& kept : layer.kept("chunkkv", 70, chunks(budget, window, chunk))) {
              CHECK(kept == expected);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a prompt shorter than a chunk is ranked token by token, as snapkv does") {
  const LayerOfStreams layer({.tokens = 40, .d = 5, .dv = 2, .heads_per_kv = 2}, 2);
  const Given snap{{"budget", count_of(12)}, {"window", count_of(4)}, {"kernel", count_of(3)}};
  CHECK(layer.kept("chunkkv", 30, chunks(12, 4, 31)) == layer.kept("snapkv", 30, snap));
  CHECK(layer.kept("chunkkv", 30, chunks(12, 4, 30)).front().size() == 30);
}

TEST_CASE("chunkkv is skipped where the window leaves nothing to rank, or queries are missing") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  CHECK(!skip_of("chunkkv", shape, 40, chunks(20, 40, 5)).empty());
  CHECK(skip_of("chunkkv", shape, 40, chunks(20, 39, 5)).empty());
  CHECK(skip_of("chunkkv", shape, 40, chunks(40, 40, 5)).empty());
  shape.first_query = 33;
  CHECK(skip_of("chunkkv", shape, 40, chunks(20, 7, 5)).empty());
  CHECK(!skip_of("chunkkv", shape, 40, chunks(20, 8, 5)).empty());
}

}  // namespace chunkkv_test
}  // namespace kvbench::test
