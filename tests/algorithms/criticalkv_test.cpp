// criticalkv: two stages of selection, against the rule written out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/kept_of_prompt.hpp"
#include "support/layer_of_streams.hpp"
#include "support/naive_observation_window.hpp"
#include "support/weighted_tokens.hpp"

namespace kvbench::test {
namespace criticalkv_test {

using Sets = std::vector<std::vector<Index>>;

struct Rule {
  Index budget = 24;
  Index window = 8;
  double share = 0.5;
  double epsilon = 1e-4;
  bool l2 = false;
  bool middle = false;
  bool adaptive = false;
  bool wo = false;  // norm wo_l1
};

Given given(const Rule& rule) {
  return {{"budget", count_of(rule.budget)},
          {"window", count_of(rule.window)},
          {"kernel", count_of(3)},
          {"share", number(rule.share)},
          {"epsilon", number(rule.epsilon)},
          {"norm", word_of(rule.l2 ? "value_l2" : "value_l1")},
          {"first", word_of(rule.middle ? "middle" : "whole")},
          {"heads", word_of(rule.adaptive ? "adaptive" : "uniform")}};
}

std::vector<Real> mean_scores(const Stream& stream, Index prompt, Index window) {
  const NaiveObservation pools{.window = window, .kernel = 3};
  auto scores = naive_pooled(naive_observation_scores(stream, prompt, pools), pools);
  for (Real& score : scores) score /= static_cast<Real>(window);
  return scores;
}

// Places of the best, of equal ones the lower.
std::vector<Index> best(const std::vector<Real>& scores, Index count) {
  std::vector<Index> order(scores.size());
  for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<Index>(j);
  std::stable_sort(order.begin(), order.end(),
                   [&](Index a, Index b) { return scores[a] > scores[b]; });
  order.resize(std::max<Index>(0, count));
  return order;
}

Sets naive(const LayerOfStreams& layer, Index prompt, const Rule& rule) {
  std::vector<std::vector<Real>> scores;
  for (const Stream* stream : layer.streams) {
    scores.push_back(mean_scores(*stream, prompt, rule.window));
  }
  const std::size_t heads = scores.size();
  std::vector<Index> budgets(heads, rule.budget);
  Index safe = 0;
  if (rule.adaptive) {
    // The window and then the n_safe best of a head cannot go; of the rest the best of all heads.
    safe = std::max<Index>(1, static_cast<Index>(static_cast<double>(rule.budget) * 0.2));
    const Index forced = std::max<Index>(0, safe - rule.window);
    std::vector<std::pair<Real, std::size_t>> rest;
    for (std::size_t h = 0; h < heads; ++h) {
      std::vector<Real> sorted(scores[h]);
      std::sort(sorted.rbegin(), sorted.rend());
      for (std::size_t k = static_cast<std::size_t>(forced); k < sorted.size(); ++k) {
        rest.emplace_back(-sorted[k], h);
      }
      budgets[h] = rule.window + forced;
    }
    std::sort(rest.begin(), rest.end());
    const auto more = static_cast<Index>(heads) * (rule.budget - rule.window - forced);
    for (Index k = 0; k < more; ++k) ++budgets[rest[k].second];
  }
  Sets out;
  for (std::size_t h = 0; h < heads; ++h) {
    const Stream& stream = *layer.streams[h];
    const Index first = prompt - rule.window - std::ssize(scores[h]);
    const auto k1 =
        rule.middle
            ? static_cast<Index>(static_cast<double>(budgets[h] - rule.window) * rule.share)
            : static_cast<Index>(static_cast<double>(budgets[h]) * rule.share) - rule.window;
    std::vector<Index> kept = best(scores[h], std::max({Index{0}, k1, safe - rule.window}));
    std::vector<Real> second;
    for (std::size_t j = 0; j < scores[h].size(); ++j) {
      Real nu = 0;
      for (Index k = 0; k < stream.shape.dv; ++k) {
        const Real v = stream.values(first + static_cast<Index>(j), k);
        nu += rule.l2 ? v * v : std::fabs(v);
      }
      if (rule.l2) nu = std::sqrt(nu);
      if (rule.wo) {
        nu = 0;
        for (const double* norms : stream.wo_v_l1) nu += norms[first + static_cast<Index>(j)];
        nu /= stream.shape.heads_per_kv;
      }
      second.push_back((scores[h][j] + static_cast<Real>(rule.epsilon)) * nu);
    }
    for (const Index place : kept) second[place] = -1;
    for (const Index place : best(second, budgets[h] - rule.window - std::ssize(kept))) {
      kept.push_back(place);
    }
    for (Index& place : kept) place += first;
    for (Index j = prompt - rule.window; j < prompt; ++j) kept.push_back(j);
    std::sort(kept.begin(), kept.end());
    out.push_back(kept);
  }
  return out;
}

std::vector<StreamSpec> specs() {
  return {{.tokens = 90, .d = 5, .dv = 3, .heads_per_kv = 3},
          {.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 2, .window = 50},
          {.tokens = 90, .d = 4, .dv = 5, .kind = StreamKind::kClustered},
          {.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 3, .query_size = 3, .sinks = true},
          {.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 2, .alibi = true},
          {.tokens = 90, .d = 4, .dv = 3, .heads_per_kv = 2, .chunk = 36}};
}

TEST_CASE("criticalkv, worked: half of the budget by score, the rest by score times value") {
  // Weights 8 7 6 5 4 3 2 1 of tokens 0..7 besides a window of 2, values of size 1 but 5 for token
  // 6 (2 * 5 = 10) and 3 for token 4 (4 * 3 = 12).
  Rows values(11, {1.0, 0.0});
  values[4] = {-1.5, 1.5};
  values[6] = {3.0, -2.0};
  const auto owned = weighted_tokens({8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1}, values);
  const auto kept = [&](const Rule& rule) {
    Given of = given(rule);
    of[2].second = count_of(1);
    return kept_of_prompt("criticalkv", owned->stream, 10, of);
  };
  // Whole: int(6 / 2) - 2 = 1 by score, then 4 (12), 6 (10) and 1 (7).
  CHECK(kept({.budget = 6, .window = 2}) == std::vector<Index>{0, 1, 4, 6, 8, 9});
  // Middle: int(4 / 2) = 2 by score.
  CHECK(kept({.budget = 6, .window = 2, .middle = true}) == std::vector<Index>{0, 1, 4, 6, 8, 9});
  // With a larger share, whole: int(4.5) - 2 = 2; middle: int(4 * 0.75) = 3.
  CHECK(kept({.budget = 6, .window = 2, .share = 0.75}) == std::vector<Index>{0, 1, 4, 6, 8, 9});
  CHECK(kept({.budget = 6, .window = 2, .share = 0.75, .middle = true}) ==
        std::vector<Index>{0, 1, 2, 4, 8, 9});
  CHECK(kept({.budget = 5, .window = 2, .middle = true}) == std::vector<Index>{0, 4, 6, 8, 9});
  CHECK(kept({.budget = 5, .window = 2, .share = 0.9}) == std::vector<Index>{0, 1, 4, 8, 9});
  // By 2-norms: 4 has 2.12 * 4 = 8.5, 6 has 3.6 * 2 = 7.2, token 0 itself 8.
  CHECK(kept({.budget = 4, .window = 2, .share = 0.0, .l2 = true}) ==
        std::vector<Index>{0, 4, 8, 9});
  CHECK(kept({.budget = 4, .window = 2, .share = 0.0}) == std::vector<Index>{4, 6, 8, 9});
}

TEST_CASE("criticalkv keeps what the two stages written out keep") {
  for (const StreamSpec& spec : specs()) {
    const LayerOfStreams layer(spec, 3);
    for (const Index budget : {9, 24, 30}) {
      for (const double share : {0.0, 0.5, 0.9}) {
        for (const bool l2 : {false, true}) {
          for (const bool middle : {false, true}) {
            for (const bool adaptive : {false, true}) {
              const Rule rule{.budget = budget,
                              .window = adaptive ? Index{3} : Index{8},
                              .share = share,
                              .l2 = l2,
                              .middle = middle,
                              .adaptive = adaptive};
              CAPTURE(spec.window);
              CAPTURE(budget);
              CAPTURE(share);
              CAPTURE(l2);
              CAPTURE(middle);
              CAPTURE(adaptive);
              CHECK(layer.kept("criticalkv", 70, given(rule)) == naive(layer, 70, rule));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("epsilon is absolute: it is added to means over the window's rows, not to sums") {
  const LayerOfStreams layer(specs().front(), 1);
  Rule large{.share = 0.0, .epsilon = 0.02};
  const Sets ours = layer.kept("criticalkv", 70, given(large));
  CHECK(ours == naive(layer, 70, large));
  large.epsilon /= static_cast<double>(large.window);
  CHECK(ours != naive(layer, 70, large));
}

TEST_CASE("memory cannot be asked for where budgets are shared out over heads") {
  const AlgorithmDescription& criticalkv = algorithm_named("criticalkv");
  Given half = given({});
  half[0].second = Value{MemoryBudget{0.5}};
  CHECK(!criticalkv.validate(params_for(criticalkv, half)));
  half.back().second = word_of("adaptive");
  CHECK(criticalkv.validate(params_for(criticalkv, half))->first == "budget");
}

TEST_CASE("norm wo_l1 is the mean of the query heads' norms, and is skipped without them") {
  LayerOfStreams layer(specs().front(), 2);
  Given wo = given({});
  wo[5].second = word_of("wo_l1");
  StreamShape without = layer.streams[0]->shape;
  without.wo_v_l1 = false;
  CHECK(skip_of("criticalkv", without, 70, wo).find("wo_v_l1") != std::string::npos);
  // W_O of identity blocks: the norms are those of the values, in each query head; factors of the
  // heads are one factor of their mean.
  for (auto& owned : layer.owned) {
    for (std::size_t g = 0; g < owned->wo_v_l1.size(); ++g) {
      for (Index j = 0; j < owned->stream.shape.tokens; ++j) {
        double norm = 0.0;
        for (Index k = 0; k < owned->stream.shape.dv; ++k) {
          norm += static_cast<double>(g + 1) * std::fabs(owned->stream.values(j, k));
        }
        owned->wo_v_l1[g][j] = norm;
      }
    }
  }
  CHECK(skip_of("criticalkv", layer.streams[0]->shape, 70, wo).empty());
  CHECK(layer.kept("criticalkv", 70, wo) == naive(layer, 70, {}));
  // Other norms of one query head change the sets.
  std::vector<double>& norms = layer.owned[0]->wo_v_l1[1];
  for (std::size_t j = 0; j < 60; j += 2) norms[j] *= 20.0;
  CHECK(layer.kept("criticalkv", 70, wo) != naive(layer, 70, {}));
  CHECK(layer.kept("criticalkv", 70, wo) == naive(layer, 70, {.wo = true}));
  norms[3] = -1e6;
  CHECK_THROWS_WITH_AS(layer.kept("criticalkv", 70, wo),
                       "wo_v_l1 of the dump is negative at token 3", CellError);
}

}  // namespace criticalkv_test
}  // namespace kvbench::test
