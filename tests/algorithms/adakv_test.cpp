// adakv: budgets over the heads of a layer, against the released and kvpress's rules written out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/layer_of_streams.hpp"
#include "support/naive_observation_window.hpp"
#include "support/weighted_tokens.hpp"

namespace kvbench::test {
namespace adakv_test {

using Sets = std::vector<std::vector<Index>>;

Given ada(Index budget, Index window, double floor, const char* semantics = "released") {
  return {{"budget", count_of(budget)},
          {"window", count_of(window)},
          {"kernel", count_of(3)},
          {"floor", number(floor)},
          {"semantics", word_of(semantics)}};
}

struct Entry {
  Real score;
  std::size_t head;
  Index token;
};

bool before(const Entry& a, const Entry& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.head != b.head ? a.head < b.head : a.token < b.token;
}

std::vector<std::vector<Real>> pooled_scores(const LayerOfStreams& layer, Index prompt,
                                             Index window) {
  std::vector<std::vector<Real>> out;
  const NaiveObservation rule{.window = window, .kernel = 3};
  for (const Stream* stream : layer.streams) {
    out.push_back(naive_pooled(naive_observation_scores(*stream, prompt, rule), rule));
  }
  return out;
}

std::vector<Index> naive_counts(const std::vector<std::vector<Real>>& scores, Index total) {
  std::vector<Entry> all;
  for (std::size_t h = 0; h < scores.size(); ++h) {
    for (std::size_t j = 0; j < scores[h].size(); ++j) {
      all.push_back({scores[h][j], h, static_cast<Index>(j)});
    }
  }
  std::sort(all.begin(), all.end(), before);
  std::vector<Index> counts(scores.size(), 0);
  for (Index k = 0; k < total; ++k) ++counts[all[k].head];
  return counts;
}

Index half_to_even(Real x) {
  const auto below = static_cast<Index>(std::floor(x));
  const Real rest = x - static_cast<Real>(below);
  return rest > 0.5L || (rest == 0.5L && below % 2 == 1) ? below + 1 : below;
}

Sets naive_released(const LayerOfStreams& layer, Index prompt, Index budget, Index window,
                    double floor) {
  const auto scores = pooled_scores(layer, prompt, window);
  const Index base = budget - window;
  const auto counts = naive_counts(scores, std::ssize(scores) * base);
  const auto least = static_cast<Index>(static_cast<double>(base) * floor);
  Sets out;
  for (std::size_t h = 0; h < scores.size(); ++h) {
    const double kept = static_cast<double>(counts[h]) * (1.0 - floor) + static_cast<double>(least);
    out.push_back(
        naive_observation_kept(*layer.streams[h], prompt, window, scores[h], half_to_even(kept)));
  }
  return out;
}

// As the press does it: the window has the largest score, the n_safe best of each head cannot go,
// and the lowest of all heads together go.
Sets naive_kvpress(const LayerOfStreams& layer, Index prompt, Index budget, Index window,
                   double floor) {
  const auto scores = pooled_scores(layer, prompt, window);
  const Index first = prompt - window - std::ssize(scores[0]);
  Real largest = 0;
  for (const auto& head : scores)
    largest = std::max(largest, *std::max_element(head.begin(), head.end()));
  std::vector<Entry> all;
  auto safe = static_cast<Index>(static_cast<double>(budget) * floor);
  if (floor > 0) safe = std::max<Index>(1, safe);
  for (std::size_t h = 0; h < scores.size(); ++h) {
    std::vector<Entry> head;
    for (Index j = first; j < prompt; ++j) {
      const auto place = static_cast<std::size_t>(j - first);
      head.push_back({place < scores[h].size() ? scores[h][place] : largest, h, j});
    }
    std::sort(head.begin(), head.end(), before);
    for (Index k = 0; k < safe; ++k) {
      head[k].score = std::numeric_limits<Real>::infinity();
    }
    all.insert(all.end(), head.begin(), head.end());
  }
  std::sort(all.begin(), all.end(), before);
  Sets out(scores.size());
  for (Index k = 0; k < std::ssize(scores) * budget; ++k) {
    const Entry& entry = all[k];
    out[entry.head].push_back(entry.token);
  }
  for (auto& kept : out) std::sort(kept.begin(), kept.end());
  return out;
}

std::vector<StreamSpec> specs() {
  return {{.tokens = 90, .d = 5, .dv = 2, .heads_per_kv = 3},
          {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 50},
          {.tokens = 90, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 2},
          {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
          {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
          {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 36}};
}

TEST_CASE("adakv, worked: the head with larger scores has more tokens, the floor gives some back") {
  // Window 2 of P = 10, no pooling. Out of 100, head 0 gives its tokens 40 20 10 5 5 5 5 5 and head
  // 1 gives 18 16 14 12 10 8 6 6, next to windows of 5 and 10: mean budget 5, so 6 scores of both:
  // 40 20 18 16 14 12. Head 0 counts 2, head 1 counts 4.
  const auto a = weighted_tokens({40, 20, 10, 5, 5, 5, 5, 5, 2.5, 2.5, 1});
  const auto b = weighted_tokens({18, 16, 14, 12, 10, 8, 6, 6, 5, 5, 1});
  b->stream.id.kv_head = 1;
  const auto kept = [&](double floor) {
    Given given = ada(5, 2, floor);
    given[2].second = count_of(1);
    Sets out;
    for (const KeptSets& sets : kept_in_scope("adakv", {&a->stream, &b->stream}, 10, given)) {
      out.push_back(sets.front());
      out.back().pop_back();
    }
    return out;
  };
  CHECK(kept(0.0) == Sets{{0, 1, 8, 9}, {0, 1, 2, 3, 8, 9}});
  // Floor 0.5: 2 * 0.5 + int(1.5) = 2 and 4 * 0.5 + 1 = 3: one less than the budget of both.
  CHECK(kept(0.5) == Sets{{0, 1, 8, 9}, {0, 1, 2, 8, 9}});
  CHECK(kept(1.0) == Sets{{0, 1, 2, 8, 9}, {0, 1, 2, 8, 9}});
  // 2 * 0.75 + int(0.75) = 1.5 and 4 * 0.75 + 0 = 3: half goes to the even number.
  CHECK(kept(0.25) == Sets{{0, 1, 8, 9}, {0, 1, 2, 8, 9}});
}

TEST_CASE("adakv keeps what the released rule written out keeps") {
  for (const StreamSpec& spec : specs()) {
    for (const int heads : {1, 2, 5}) {
      const LayerOfStreams layer(spec, heads);
      for (const Index budget : {9, 16, 30}) {
        for (const double floor : {0.0, 0.2, 0.7, 1.0}) {
          CAPTURE(spec.window);
          CAPTURE(heads);
          CAPTURE(budget);
          CAPTURE(floor);
          CHECK(layer.kept("adakv", 70, ada(budget, 8, floor)) ==
                naive_released(layer, 70, budget, 8, floor));
          // The largest score occurs three times; where these and the window fill a head's or the
          // layer's budget, the press may keep them in place of the window.
          if (heads * (budget - 8) < 3 || (budget - 8 < 3 && floor == 1.0)) continue;
          CHECK(layer.kept("adakv", 70, ada(budget, 8, floor, "kvpress")) ==
                naive_kvpress(layer, 70, budget, 8, floor));
        }
      }
    }
  }
}

TEST_CASE(
    "counts sum to the heads' budget, kept tokens to it within rounding, as layer_tokens says") {
  for (const StreamSpec& spec : specs()) {
    const LayerOfStreams layer(spec, 5);
    for (const double floor : {0.0, 0.2, 0.45}) {
      const Given given = ada(20, 8, floor);
      Index counted = 0;
      Index tokens = 0;
      for (std::size_t h = 0; h < 5; ++h) {
        counted +=
            static_cast<Index>(derived_real(layer.derived("adakv", 70, given, h), "counted"));
        const auto kept = layer.kept("adakv", 70, given)[h];
        tokens += std::ssize(kept);
        CHECK(derived_real(layer.derived("adakv", 70, given, h), "selected") + 8 ==
              static_cast<double>(kept.size()));
      }
      CHECK(counted == 5 * 12);
      CHECK(std::abs(tokens - 5 * 20) <= 5 / 2 + 5);
      CHECK(derived_real(layer.derived("adakv", 70, given, 2), "layer_tokens") ==
            static_cast<double>(tokens));
    }
  }
}

TEST_CASE("with pyramid the mean of a layer is pyramidkv's with beta 20") {
  LayerOfStreams layer(specs().front(), 2);
  for (int l = 0; l < 4; ++l) {
    for (auto& owned : layer.owned) {
      owned->stream.shape.n_layers = 4;
      owned->stream.id.layer = l;
    }
    Given given = ada(18, 8, 0.0);
    given.emplace_back("pyramid", Value{true});
    Index tokens = 0;
    for (const auto& head : layer.kept("adakv", 70, given)) {
      tokens += std::ssize(head) - 8;
    }
    CHECK(tokens == 2 * naive_pyramid_selected(70, 18, 8, 20, 4, l));
  }
}

TEST_CASE("adakv is skipped as snapkv is") {
  StreamShape shape = make_stream({.tokens = 90, .d = 4, .dv = 2})->stream.shape;
  CHECK(!skip_of("adakv", shape, 70, ada(8, 8, 0.2)).empty());
  CHECK(skip_of("adakv", shape, 70, ada(9, 8, 0.2)).empty());
  shape.first_query = 63;
  CHECK(!skip_of("adakv", shape, 70, ada(9, 8, 0.2)).empty());
}

}  // namespace adakv_test
}  // namespace kvbench::test
