// pyramidkv: how many tokens each layer selects, and which.
#include <doctest/doctest.h>

#include "support/kept_of_prompt.hpp"
#include "support/naive_observation_window.hpp"
#include "support/owned_stream.hpp"
#include "support/weighted_tokens.hpp"

namespace kvbench::test {
namespace pyramidkv_test {

Given pyramid(Index budget, Index window, Index beta) {
  return {{"budget", count_of(budget)}, {"window", count_of(window)}, {"beta", count_of(beta)}};
}

// Prompt tokens kept in layer `layer` of `layers`.
std::vector<Index> kept(OwnedStream& owned, Index prompt, int layers, int layer,
                        const Given& given) {
  owned.stream.shape.n_layers = layers;
  owned.stream.id.layer = layer;
  return kept_of_prompt("pyramidkv", owned.stream, prompt, given);
}

TEST_CASE("pyramidkv, worked: 8192 tokens, budget 128 of which 8 window, 32 layers, beta 20") {
  // B = 120, min = 120 // 20 = 6, max = 240 - 6 = 234, step = (234 - 6) // 31 = 7.
  const auto owned = make_stream({.tokens = 8193, .d = 1, .dv = 1});
  const Given given = pyramid(128, 8, 20);
  CHECK(kept(*owned, 8192, 32, 0, given).size() == 234 + 8);
  CHECK(kept(*owned, 8192, 32, 1, given).size() == 227 + 8);
  CHECK(kept(*owned, 8192, 32, 15, given).size() == 129 + 8);
  CHECK(kept(*owned, 8192, 32, 31, given).size() == 17 + 8);
  // One layer: no step.
  CHECK(kept(*owned, 8192, 1, 0, given).size() == 234 + 8);
}

TEST_CASE("pyramidkv, worked: a prompt too short for the first layer's share") {
  // B = 20, beta 10: min 2, max 38. P = 45: 38 >= 45 - 8 = 37, so max = 37, min = 40 - 37 = 3;
  // L = 5: step = 34 // 4 = 8: 37, 29, 21, 13, 5.
  const auto owned = make_stream({.tokens = 60, .d = 2, .dv = 1});
  const Given given = pyramid(28, 8, 10);
  const Index selected[] = {37, 29, 21, 13, 5};
  for (int layer = 0; layer < 5; ++layer) {
    CHECK(static_cast<Index>(kept(*owned, 45, 5, layer, given).size()) == selected[layer] + 8);
  }
  // P = 46: 38 >= 38 still bounds: max = 38, min = 2, step 9. P = 47: 38 < 39: the same numbers.
  for (const Index prompt : {46, 47}) {
    for (int layer = 0; layer < 5; ++layer) {
      CHECK(static_cast<Index>(kept(*owned, prompt, 5, layer, given).size()) == 38 - 9 * layer + 8);
    }
  }
}

TEST_CASE("pyramidkv, worked: a prompt below twice the mean keeps the mean in every layer") {
  // B = 20 and P = 39 < 40: 28 in every layer; P = 40: max = 32, min = 8, L = 4: step 8.
  const auto owned = make_stream({.tokens = 60, .d = 2, .dv = 1});
  const Given given = pyramid(28, 8, 10);
  for (int layer = 0; layer < 4; ++layer) {
    CHECK(kept(*owned, 39, 4, layer, given).size() == 28);
    CHECK(static_cast<Index>(kept(*owned, 40, 4, layer, given).size()) == 32 - 8 * layer + 8);
  }
  // Within the budget: whole.
  for (const Index prompt : {27, 28}) {
    CHECK(static_cast<Index>(kept(*owned, prompt, 4, 3, given).size()) == prompt);
  }
}

TEST_CASE("pyramidkv, worked: two layers over ten tokens") {
  // Window 2 of P = 10, budget 4: B = 2, beta 2: min 1, max 3, step 2: 3 and 1 of tokens 0..7, by
  // the weights 9 1 5 1 7 1 1 8 without pooling: 0, 7, 4 and then 0 alone.
  const auto owned = weighted_tokens({9, 1, 5, 1, 7, 1, 1, 8, 1, 1, 1});
  Given given = pyramid(4, 2, 2);
  given.emplace_back("kernel", count_of(1));
  CHECK(kept(*owned, 10, 2, 0, given) == std::vector<Index>{0, 4, 7, 8, 9});
  CHECK(kept(*owned, 10, 2, 1, given) == std::vector<Index>{0, 8, 9});
  // The largest of three neighbours: pools 9 9 5 7 7 7 8 8: 0, 1 and of the two of 8 the lower.
  given.back().second = count_of(3);
  CHECK(kept(*owned, 10, 2, 0, given) == std::vector<Index>{0, 1, 6, 8, 9});
}

TEST_CASE(
    "pyramidkv selects as the formula says, and those tokens that snapkv's scores rank first") {
  for (const Index window : {0, 60}) {
    const auto owned =
        make_stream({.tokens = 100, .d = 4, .dv = 2, .heads_per_kv = 2, .window = window});
    for (const Index prompt : {35, 80, 99}) {
      const NaiveObservation rule{8, 7, false, "mean"};
      const std::vector<Real> pooled =
          naive_pooled(naive_observation_scores(owned->stream, prompt, rule), rule);
      const Index length = prompt - std::min(owned->stream.shape.first_visible(prompt), prompt);
      for (const Index budget : {9, 20, 27, 34}) {
        for (const Index beta : {1, 3, 20}) {
          for (const int layers : {1, 2, 7, 30}) {
            for (const int layer : {0, layers / 2, layers - 1}) {
              CAPTURE(window);
              CAPTURE(prompt);
              CAPTURE(budget);
              CAPTURE(beta);
              CAPTURE(layers);
              CAPTURE(layer);
              if (length <= budget) continue;
              const Index selected = naive_pyramid_selected(length, budget, 8, beta, layers, layer);
              CHECK(kept(*owned, prompt, layers, layer, pyramid(budget, 8, beta)) ==
                    naive_observation_kept(owned->stream, prompt, 8, pooled, selected));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("the budget is the mean over layers, up to what the step rounds off") {
  const auto owned = make_stream({.tokens = 1001, .d = 2, .dv = 1});
  for (const int layers : {2, 16, 33}) {
    Index total = 0;
    for (int layer = 0; layer < layers; ++layer) {
      total += static_cast<Index>(kept(*owned, 1000, layers, layer, pyramid(108, 8, 20)).size());
    }
    // min + max = 2 B: the mean would be B + 8 with an unrounded step, which loses less than 1 per
    // layer.
    CHECK(total >= 108 * layers);
    CHECK(total < 108 * layers + layers * (layers - 1) / 2);
  }
}

TEST_CASE("pyramidkv is skipped as snapkv is") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  CHECK(!skip_of("pyramidkv", shape, 40, {{"budget", count_of(8)}}).empty());
  CHECK(skip_of("pyramidkv", shape, 40, {{"budget", count_of(9)}}).empty());
  shape.first_query = 33;
  CHECK(!skip_of("pyramidkv", shape, 40, {{"budget", count_of(9)}}).empty());
  shape.first_query = 32;
  CHECK(skip_of("pyramidkv", shape, 40, {{"budget", count_of(9)}}).empty());
  const AlgorithmDescription& pyramidkv = algorithm_named("pyramidkv");
  CHECK(pyramidkv.validate(
      params_for(pyramidkv, {{"budget", count_of(20)}, {"kernel", count_of(4)}})));
}

}  // namespace pyramidkv_test
}  // namespace kvbench::test
