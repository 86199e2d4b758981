// Whole pages, and the same tokens in several KV heads: streams worked by hand, and the choice
// written page by page for methods whose scores have an oracle of their own.
#include "algorithms/mechanisms/paging.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "support/kept_of_prompt.hpp"
#include "support/layer_of_streams.hpp"
#include "support/naive_expected.hpp"
#include "support/naive_observation_window.hpp"

namespace kvbench::test {
namespace paging_test {

Given with(Given given, const Given& more) {
  given.insert(given.end(), more.begin(), more.end());
  return given;
}

Given paged(Index pages, const char* rule = "mean", const char* same_in = "head") {
  return {{"pages", count_of(pages)}, {"page_score", word_of(rule)}, {"same_in", word_of(same_in)}};
}

Given knorm(Index budget, Index sinks = 0, Index recent = 0) {
  return {{"budget", count_of(budget)}, {"sinks", count_of(sinks)}, {"recent", count_of(recent)}};
}

// Keys and values of one number.
std::unique_ptr<OwnedStream> stream_with_norms(const std::vector<double>& norms) {
  Rows keys;
  for (const double norm : norms) keys.push_back({norm});
  const Rows ones(norms.size(), {1.0});
  return stream_of(keys, ones, {ones});
}

bool says(const std::string& text, const char* words) {
  return text.find(words) != std::string::npos;
}

TEST_CASE("pages, worked: those of a sink and of the prompt's end stay, the best of the others") {
  // Pages of 3 of an 11-token prompt: 0-2 has the sink, 9-10 is the end. The norms of 3-5 are
  // 1 1 6, mean 8/3 and smallest 1, those of 6-8 are 2 2 3, mean 7/3 and smallest 2.
  const auto owned = stream_with_norms({9, 9, 9, 1, 1, 6, 2, 2, 3, 9, 9, 1});
  const auto kept = [&](Index budget, const Given& more, Index recent = 0) {
    return kept_of_prompt("knorm", owned->stream, 11, with(knorm(budget, 1, recent), more));
  };
  using Tokens = std::vector<Index>;
  CHECK(kept(8, paged(3)) == Tokens{0, 1, 2, 6, 7, 8, 9, 10});
  CHECK(kept(8, paged(3, "max")) == Tokens{0, 1, 2, 3, 4, 5, 9, 10});
  CHECK(kept(10, paged(3)) == kept(8, paged(3)));  // no room for a second page
  CHECK(kept(7, paged(3)) == Tokens{0, 1, 2, 9, 10});
  CHECK(kept(11, paged(3)).size() == 11);
  CHECK(kept(8, {}) == Tokens{0, 1, 3, 4, 5, 6, 7, 8});
  CHECK(kept(8, paged(1)) == kept(8, {}));
  // The last three tokens are recent: token 8 keeps its page.
  CHECK(kept(8, paged(3), 3) == Tokens{0, 1, 2, 6, 7, 8, 9, 10});
  CHECK(kept(8, paged(3, "max"), 3) == kept(8, paged(3), 3));
  const std::string skip = skip_of("knorm", owned->stream.shape, 11, with(knorm(4, 1), paged(3)));
  CHECK(says(skip, "5 tokens together"));
  CHECK(says(skip, "raise budget to 5"));
  CHECK(skip_of("knorm", owned->stream.shape, 11, with(knorm(5, 1), paged(3))).empty());
  CHECK(skip_of("knorm", owned->stream.shape, 11, knorm(4, 1)).empty());
}

TEST_CASE("same_in, worked: heads count alike whatever the size of their scores") {
  // Less the least and over the sum: head 0 has 3 1 0 0 over 4, head 1 has 0 10 20 0 over 30.
  // Sums 0.75 0.58 0.67 0. Raw scores would be head 1's choice.
  LayerOfStreams layer({.tokens = 5, .d = 1, .dv = 1}, 2);
  const std::vector<std::vector<double>> norms = {{0, 2, 3, 3, 1}, {20, 10, 0, 20, 1}};
  for (std::size_t h = 0; h < 2; ++h) {
    layer.owned[h]->keys = norms[h];
    layer.owned[h]->connect();
  }
  using Sets = std::vector<std::vector<Index>>;
  CHECK(layer.kept("knorm", 4, knorm(2)) == Sets{{0, 1}, {1, 2}});
  CHECK(layer.kept("knorm", 4, with(knorm(2), paged(1, "mean", "layer"))) == Sets{{0, 2}, {0, 2}});
  CHECK(layer.kept("knorm", 4, with(knorm(3), paged(1, "mean", "layer"))) ==
        Sets{{0, 1, 2}, {0, 1, 2}});
  CHECK(layer.kept("knorm", 4, with(knorm(3), paged(2, "mean", "layer"))) == Sets{{0, 1}, {0, 1}});
  std::vector<double> sums(3, 0.0);
  add_shares({5, 5, 5}, sums);  // says nothing
  CHECK(sums == std::vector<double>{0, 0, 0});
  add_shares({-1, 3, 0}, sums);
  CHECK(sums == std::vector<double>{0, 0.8, 0.2});
}

// A KV head's middle: scores by token, and how many tokens of the prompt stay.
struct Ranked {
  std::map<Index, Real> scores;
  Index budget = 0;
};

// Pages as sets of visible tokens; those that must stay, then the best while they fit.
std::vector<Index> naive_pages(const Ranked& ranked, Index first, Index prompt, Index size,
                               const std::string& rule) {
  std::map<Index, std::vector<Index>> pages;
  for (Index token = first; token < prompt; ++token) pages[token / size].push_back(token);
  std::vector<Index> kept;
  std::vector<std::pair<Real, Index>> others;
  for (const auto& [page, tokens] : pages) {
    bool stays = (page + 1) * size > prompt;
    Real sum = 0;
    Real most = -1e300L;
    for (const Index token : tokens) {
      const auto score = ranked.scores.find(token);
      stays = stays || score == ranked.scores.end();
      if (stays) continue;
      sum += score->second;
      most = std::max(most, score->second);
    }
    if (stays) {
      kept.insert(kept.end(), tokens.begin(), tokens.end());
    } else {
      others.emplace_back(rule == "max" ? -most : -sum / static_cast<Real>(tokens.size()), page);
    }
  }
  std::sort(others.begin(), others.end());
  Index room = ranked.budget - std::ssize(kept);
  for (const auto& [score, page] : others) {
    if ((room -= size) < 0) break;
    kept.insert(kept.end(), pages[page].begin(), pages[page].end());
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

// The mean over heads of scores less the least, over their sum.
std::map<Index, Real> naive_same(const std::vector<const Ranked*>& heads) {
  std::map<Index, Real> mean;
  for (const Ranked* head : heads) {
    Real least = head->scores.begin()->second;
    for (const auto& [token, score] : head->scores) least = std::min(least, score);
    Real total = 0;
    for (const auto& [token, score] : head->scores) total += score - least;
    for (const auto& [token, score] : head->scores) {
      mean[token] += (score - least) / total / static_cast<Real>(heads.size());
    }
  }
  return mean;
}

struct Case {
  std::string id;
  Given given;
  std::function<Ranked(const Stream&, Index prompt)> ranked;
};

std::vector<Case> cases(Index budget) {
  const auto from = [](Index first, const std::vector<Real>& scores) {
    std::map<Index, Real> out;
    for (std::size_t j = 0; j < scores.size(); ++j) out[first + static_cast<Index>(j)] = scores[j];
    return out;
  };
  const auto first_of = [](const Stream& stream, Index prompt, Index sinks) {
    return std::max(sinks, stream.shape.first_visible(prompt));
  };
  const auto observed = [=](const Stream& stream, Index prompt) {
    const NaiveObservation rule{.window = 5, .kernel = 3};
    return from(stream.shape.first_visible(prompt), naive_observed(stream, prompt, rule));
  };
  const Given window{
      {"budget", count_of(budget)}, {"window", count_of(5)}, {"kernel", count_of(3)}};
  return {{"knorm", knorm(budget, 2, 3),
           [=](const Stream& stream, Index prompt) {
             std::vector<Real> scores;
             const Index first = first_of(stream, prompt, 2);
             for (Index token = first; token < prompt - 3; ++token) {
               Real sum = 0;
               for (Index k = 0; k < stream.shape.d; ++k) {
                 sum += static_cast<Real>(stream.keys(token, k)) * stream.keys(token, k);
               }
               scores.push_back(-std::sqrt(sum));
             }
             return Ranked{from(first, scores), budget};
           }},
          {"snapkv", window,
           [=](const Stream& stream, Index prompt) {
             return Ranked{observed(stream, prompt), budget};
           }},
          {"pyramidkv", with(window, {{"beta", count_of(4)}}),
           [=](const Stream& stream, Index prompt) {
             const Index length = prompt - stream.shape.first_visible(prompt);
             return Ranked{observed(stream, prompt),
                           5 + naive_pyramid_selected(length, budget, 5, 4, stream.shape.n_layers,
                                                      stream.id.layer)};
           }},
          {"expected_attention",
           {{"budget", count_of(budget)}, {"sinks", count_of(2)}, {"future", count_of(9)}},
           [=](const Stream& stream, Index prompt) {
             std::vector<Real> scores =
                 naive_expected_attention(stream, 2, prompt, {.future = 9, .covariance = true});
             for (std::size_t j = 0; j < scores.size(); ++j) {
               Real sum = 0;
               for (Index k = 0; k < stream.shape.dv; ++k) {
                 const Real v = stream.values(2 + static_cast<Index>(j), k);
                 sum += v * v;
               }
               scores[j] *= std::sqrt(sum);
             }
             return Ranked{from(2, scores), budget};
           }}};
}

TEST_CASE("methods keep the pages that the rule page by page keeps") {
  Index compared = 0;
  Index changed = 0;  // cases whose choice is not that of free tokens
  for (const Index sliding : {0, 41}) {
    const StreamSpec spec{.tokens = 70,
                          .d = 6,
                          .dv = 3,
                          .heads_per_kv = 2,
                          .window = sliding,
                          .query_size = 2,
                          .rope_pairs = 3};
    LayerOfStreams model(spec, 3, 2);
    for (const auto& owned : model.owned) owned->stream.shape.n_layers = 2;
    for (const Index prompt : {60, 61}) {
      for (const Index budget : {prompt == 60 ? 30 : 21}) {
        for (const Case& each : cases(budget)) {
          if (sliding > 0 && each.id == "expected_attention") continue;
          std::vector<Ranked> ranked;
          std::vector<std::vector<Index>> free;
          for (const Stream* stream : model.streams) {
            ranked.push_back(each.ranked(*stream, prompt));
            free.push_back(kept_by(each.id, *stream, prompt, each.given).front());
          }
          for (const char* same_in : {"head", "layer", "model"}) {
            if (same_in == std::string("model") && (sliding > 0 || each.id == "pyramidkv"))
              continue;
            for (const auto& [pages, rule] : std::vector<std::pair<Index, const char*>>{
                     {1, "mean"}, {4, "mean"}, {4, "max"}, {7, "mean"}}) {
              for (int l = 0; l < 2; ++l) {
                const bool whole = same_in == std::string("model");
                const std::vector<const Stream*> scope(
                    model.streams.begin() + (whole ? 0 : 3 * l),
                    model.streams.begin() + (whole ? 6 : 3 * l + 3));
                const Given given = with(each.given, paged(pages, rule, same_in));
                CAPTURE(each.id);
                CAPTURE(prompt);
                CAPTURE(budget);
                CAPTURE(same_in);
                CAPTURE(pages);
                CAPTURE(rule);
                const auto sets = kept_in_scope(each.id, scope, prompt, given);
                std::vector<const Ranked*> heads;
                const std::size_t first = whole ? 0 : static_cast<std::size_t>(3 * l);
                for (std::size_t h = 0; h < scope.size(); ++h) heads.push_back(&ranked[first + h]);
                for (std::size_t h = 0; h < scope.size(); ++h) {
                  Ranked own = *heads[h];
                  if (same_in != std::string("head")) own.scores = naive_same(heads);
                  std::vector<Index> expected =
                      naive_pages(own, scope[h]->shape.first_visible(prompt), prompt, pages, rule);
                  // The row's own token; what left the window by then is gone.
                  expected.push_back(prompt);
                  CHECK(sets[h].front() == expected);
                  ++compared;
                  changed += sets[h].front() != free[first + h] ? 1 : 0;
                }
              }
            }
          }
        }
      }
    }
  }
  CHECK(compared > 400);
  CHECK(changed > compared / 2);
}

TEST_CASE("a page of uniform stands for the pages that competed") {
  const auto owned = make_stream({.tokens = 70, .d = 4, .dv = 3});
  const Given given = with({{"budget", count_of(30)}, {"sinks", count_of(2)}}, paged(4));
  std::set<std::vector<Index>> sets;
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    const Sketch sketch = sketches_of("uniform", owned->stream, 61, given, seed).front();
    Index weighted = 0;
    double weights = 0.0;
    for (const SketchRow& row : sketch.rows()) {
      if (row.token < 4 || row.token >= 60) {
        CHECK(row.w_num == 1.0);
        CHECK(row.weight_numbers == 0);
        continue;
      }
      CHECK(row.w_num == row.w_den);
      weights += row.w_num;
      weighted += row.weight_numbers;
    }
    // Tokens 0-3 and 60 leave 25 of 30: 6 pages of the 14 of tokens 4-59.
    CHECK(weighted == 24);
    CHECK(weights == doctest::Approx(56));
    sets.insert(kept_tokens(sketch));
  }
  CHECK(sets.size() == 8);
}

TEST_CASE("the same tokens in several heads are skipped where tokens leave a window") {
  StreamShape sliding;
  sliding.tokens = 70;
  sliding.window = 41;
  const Given given = with({{"budget", count_of(30)}}, paged(1, "mean", "model"));
  CHECK(says(skip_of("knorm", sliding, 60, given), "same_in"));
}

}  // namespace paging_test
}  // namespace kvbench::test
