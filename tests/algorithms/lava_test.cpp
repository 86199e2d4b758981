// lava: scores by the largest value, entropies of layers, one ranking over a layer's heads and the
// floor, against the definitions written out over dense attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "support/layer_of_streams.hpp"
#include "support/naive_observation_window.hpp"

namespace kvbench::test {
namespace lava_test {

using Sets = std::vector<std::vector<Index>>;

constexpr Index kPrompt = 60;
constexpr Index kWindow = 6;
constexpr Index kMiddle = kPrompt - kWindow;

struct Rule {
  Index budget = 16;
  bool average = false;
  double floor = 0.2;
};

Given given(const Rule& rule) {
  return {{"budget", count_of(rule.budget)},
          {"window", count_of(kWindow)},
          {"kernel", count_of(3)},
          {"pool", word_of(rule.average ? "avg" : "max")},
          {"floor", number(rule.floor)}};
}

std::vector<Real> naive_scores(const Stream& stream, const Rule& rule) {
  NaiveObservation seen;
  seen.window = kWindow;
  seen.kernel = 3;
  seen.average = rule.average;
  seen.group = "max";
  seen.reduce = "mean";
  seen.pools_first = true;
  std::vector<Real> scores = naive_observed(stream, kPrompt, seen);
  Real largest = 0;
  for (Index j = 0; j < kMiddle; ++j) {
    Real norm = 0;
    for (Index k = 0; k < stream.shape.dv; ++k) norm += std::fabs(Real{stream.values(j, k)});
    largest = std::max(largest, norm);
  }
  for (Real& score : scores) score *= largest;
  return scores;
}

struct Naive {
  std::vector<Index> budgets;  // by layer
  Sets kept;                   // by stream
};

// `heads` streams per layer; all tokens of a layer in one sorted list.
Naive naive(const LayerOfStreams& model, std::size_t heads, const Rule& rule) {
  std::vector<std::vector<Real>> scores;
  for (const Stream* stream : model.streams) scores.push_back(naive_scores(*stream, rule));
  const std::size_t layers = scores.size() / heads;
  std::vector<Real> entropy;
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<Real> all;
    for (std::size_t h = 0; h < heads; ++h) {
      all.insert(all.end(), scores[l * heads + h].begin(), scores[l * heads + h].end());
    }
    const Real sum = std::accumulate(all.begin(), all.end(), Real{0});
    Real e = 0;
    for (const Real s : all) e -= s / sum * std::log(s / sum + 1e-16L);
    entropy.push_back(e / std::log(static_cast<Real>(all.size())));
  }
  const Real total = std::accumulate(entropy.begin(), entropy.end(), Real{0});
  Naive out;
  for (std::size_t l = 0; l < layers; ++l) {
    const auto mean = static_cast<Real>(rule.budget - kWindow);
    const auto budget = static_cast<Index>(entropy[l] / total * mean * static_cast<Real>(layers));
    out.budgets.push_back(budget);
    struct Place {
      Real score;
      std::size_t head;
    };
    std::vector<Place> places;
    for (std::size_t h = 0; h < heads; ++h) {
      for (const Real score : scores[l * heads + h]) places.push_back({score, h});
    }
    std::ranges::stable_sort(places, std::ranges::greater{}, &Place::score);
    std::vector<Index> counted(heads, 0);
    for (Index k = 0; k < std::min(std::ssize(places), budget * std::ssize(counted)); ++k) {
      ++counted[places[static_cast<std::size_t>(k)].head];
    }
    for (std::size_t h = 0; h < heads; ++h) {
      const double least = std::floor(static_cast<double>(rule.budget) * rule.floor);
      const double share = static_cast<double>(counted[h]) * (1.0 - rule.floor) + least;
      const Index selected = budget > kMiddle ? kMiddle : std::lrint(share);
      out.kept.push_back(naive_observation_kept(*model.streams[l * heads + h], kPrompt, kWindow,
                                                scores[l * heads + h],
                                                std::min(selected, kMiddle)));
    }
  }
  return out;
}

const StreamSpec kSpec{.tokens = 66, .d = 5, .dv = 2, .heads_per_kv = 2};

TEST_CASE("lava, worked: the head of larger values takes the tokens, down to the floor") {
  // One layer of two heads that attend equally to six tokens before a window of one row; values of
  // head 1 are ten times those of head 0. All 2 * 2 best scores are head 1's: of its tokens the
  // lower ones stay.
  const auto stream = [](int kv_head, double value) {
    auto owned = stream_of(Rows(8, {0.0}), Rows(8, {value}), {Rows(8, {1.0})});
    owned->stream.id.kv_head = kv_head;
    return owned;
  };
  const auto small = stream(0, -1.0);
  const auto large = stream(1, 10.0);
  const auto kept = [&](double floor) {
    const Given setting{{"budget", count_of(3)},
                        {"window", count_of(1)},
                        {"kernel", count_of(1)},
                        {"floor", number(floor)}};
    std::vector<std::vector<Index>> first;
    for (const KeptSets& sets :
         kept_in_scope("lava", {&small->stream, &large->stream}, 7, setting)) {
      first.push_back(sets.front());
    }
    return first;
  };
  CHECK(kept(0.0) == Sets{{6, 7}, {0, 1, 2, 3, 6, 7}});
  // 0 and 4 of four, times 0.6, and trunc(3 * 0.4) = 1: 1, and 3.4 rounded.
  CHECK(kept(0.4) == Sets{{0, 6, 7}, {0, 1, 2, 6, 7}});
}

TEST_CASE("lava keeps what its definitions keep, for every budget, floor and pooling") {
  Index whole_layers = 0;
  for (const StreamSpec& spec :
       {kSpec, StreamSpec{.tokens = 66, .d = 4, .dv = 2, .softcap = 3.0},
        StreamSpec{.tokens = 66, .d = 4, .dv = 2, .heads_per_kv = 2, .sinks = true},
        StreamSpec{.tokens = 66, .d = 4, .dv = 2, .alibi = true},
        StreamSpec{.tokens = 66, .d = 5, .dv = 2, .heads_per_kv = 2, .query_size = 2.5}}) {
    for (const int layers : {1, 3}) {
      const LayerOfStreams model(spec, 3, layers);
      for (const Rule& rule : {Rule{}, Rule{.budget = 7}, Rule{.budget = 30}, Rule{.budget = 59},
                               Rule{.average = true}, Rule{.floor = 0.0},
                               Rule{.budget = 30, .floor = 0.5}, Rule{.floor = 1.0}}) {
        CAPTURE(layers);
        CAPTURE(rule.budget);
        CAPTURE(rule.floor);
        const Naive expected = naive(model, 3, rule);
        CHECK(model.kept("lava", kPrompt, given(rule)) == expected.kept);
        for (std::size_t l = 0; l < expected.budgets.size(); ++l) {
          CHECK(derived_real(model.derived("lava", kPrompt, given(rule), 3 * l), "layer_budget") ==
                static_cast<double>(expected.budgets[l]));
          whole_layers += expected.budgets[l] > kMiddle ? 1 : 0;
        }
      }
    }
  }
  CHECK(whole_layers > 0);
}

TEST_CASE("where another layer of the scope lacks queries of the window, lava's cells fail") {
  LayerOfStreams model(kSpec, 2, 2);
  const auto why = [&](const Rule& rule) { return model.failure("lava", kPrompt, given(rule)); };
  const auto lacks_queries = [&](const Rule& rule) {
    return why(rule).find("layer of the scope") != std::string::npos;
  };
  CHECK(why({}).empty());
  for (std::size_t s = 2; s < 4; ++s) {
    model.owned[s]->stream.shape.first_query = kPrompt - kWindow + 1;
  }
  CHECK(lacks_queries({}));
  CHECK(why({.budget = kPrompt}).empty());  // kept whole
}

TEST_CASE("lava is skipped on sliding layers, without queries, and without tokens to select") {
  StreamShape shape = make_stream(kSpec)->stream.shape;
  CHECK(skip_of("lava", shape, kPrompt, given({})).empty());
  CHECK(!skip_of("lava", shape, kPrompt, given({.budget = 6})).empty());
  shape.first_query = kPrompt - kWindow + 1;
  CHECK(!skip_of("lava", shape, kPrompt, given({})).empty());
  CHECK(skip_of("lava", shape, kPrompt, given({.budget = 60})).empty());
  shape.first_query = 0;
  shape.window = 20;
  CHECK(skip_of("lava", shape, kPrompt, given({})).find("sliding") != std::string::npos);
}

}  // namespace lava_test
}  // namespace kvbench::test
