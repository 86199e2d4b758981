// kascade: what a layer reads is what its anchor attends to most, against the definition written
// out over dense attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "support/layer_of_streams.hpp"
#include "support/naive_attention.hpp"

namespace kvbench::test {
namespace kascade_test {

constexpr Index kTokens = 40;
constexpr Index kPrompt = 30;
constexpr std::size_t kHeads = 3;

struct Rule {
  Index budget = 6;
  Index every = 2;
  Index first = 1;
  std::string match = "closest";
  Index window = 8;
  bool whole = true;
};

Given given(const Rule& rule) {
  return {{"budget", count_of(rule.budget)}, {"every", count_of(rule.every)},
          {"first", count_of(rule.first)},   {"match", word_of(rule.match)},
          {"window", count_of(rule.window)}, {"whole", Value{rule.whole}}};
}

using Shares = std::vector<Real>;

Shares shares_of(const std::vector<const Stream*>& streams, Index row) {
  Shares out(static_cast<std::size_t>(row + 1), 0);
  for (const Stream* stream : streams) {
    for (int g = 0; g < stream->shape.heads_per_kv; ++g) {
      const NaiveRow seen = naive_row(*stream, g, row);
      for (std::size_t j = 0; j < out.size(); ++j) out[j] += seen.p[j];
    }
  }
  return out;
}

std::vector<Index> best_of(const Shares& shares, Index budget) {
  std::vector<Index> tokens(shares.size());
  std::iota(tokens.begin(), tokens.end(), Index{0});
  std::ranges::stable_sort(tokens, std::ranges::greater{},
                           [&](Index token) { return shares[static_cast<std::size_t>(token)]; });
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(budget)));
  std::ranges::sort(tokens);
  return tokens;
}

Real caught(const Shares& shares, const std::vector<Index>& tokens) {
  Real sum = 0;
  for (const Index token : tokens) sum += shares[static_cast<std::size_t>(token)];
  return sum;
}

struct Model : LayerOfStreams {
  explicit Model(int layers, Index tokens = kTokens)
      : LayerOfStreams({.tokens = tokens, .d = 5, .dv = 2, .heads_per_kv = 2, .query_size = 2},
                       kHeads, layers) {}

  const Stream* at(Index layer, std::size_t head) const {
    return streams[static_cast<std::size_t>(layer) * kHeads + head];
  }
  std::vector<const Stream*> layer(Index l) const { return {at(l, 0), at(l, 1), at(l, 2)}; }

  // The anchor's head that a head follows.
  std::size_t followed(Index layer, Index anchor, std::size_t head, const Rule& rule) const {
    if (rule.match != "closest" || layer == anchor) return head;
    std::vector<Real> likeness(kHeads, 0);
    for (Index row = kPrompt - rule.window; row < kPrompt; ++row) {
      const Shares own = shares_of({at(layer, head)}, row);
      for (std::size_t h = 0; h < kHeads; ++h) {
        likeness[h] += caught(own, best_of(shares_of({at(anchor, h)}, row), rule.budget)) /
                       caught(own, best_of(own, rule.budget));
      }
    }
    return static_cast<std::size_t>(std::ranges::max_element(likeness) - likeness.begin());
  }

  std::vector<KeptSets> expected(Index layers, const Rule& rule) const {
    std::vector<KeptSets> out;
    for (Index l = 0; l < layers; ++l) {
      for (std::size_t head = 0; head < kHeads; ++head) {
        KeptSets& sets = out.emplace_back();
        const bool reads_all = l == 0 && rule.whole;
        const Index before = rule.first + (l - rule.first) / rule.every * rule.every;
        const Index anchor = l < std::max<Index>(rule.first, 1) ? 0 : before;
        const std::size_t source = reads_all ? head : followed(l, anchor, head, rule);
        for (Index row = kPrompt; row < kTokens; ++row) {
          const Shares shares = rule.match == "pooled" ? shares_of(layer(anchor), row)
                                                       : shares_of({at(anchor, source)}, row);
          sets.push_back(best_of(shares, reads_all ? row + 1 : rule.budget));
        }
      }
    }
    return out;
  }
};

TEST_CASE("kascade, worked: a layer reads what the layer before it attends to") {
  // One head; layer 1 weighs tokens 1 8 2 4 1, layer 2 weighs them 9 1 1 1 1.
  const auto layer = [](int number, const std::vector<double>& weights) {
    Rows keys;
    for (const double weight : weights) keys.push_back({std::log(weight)});
    auto owned = stream_of(keys, Rows(5, {1.0}), {Rows(5, {1.0})});
    owned->stream.id.layer = number;
    return owned;
  };
  const auto anchor = layer(1, {1, 8, 2, 4, 1});
  const auto other = layer(2, {9, 1, 1, 1, 1});
  const std::vector<const Stream*> streams = {&anchor->stream, &other->stream};
  const auto kept =
      kept_in_scope("kascade", streams, 3, given({.budget = 2, .first = 0, .window = 2}));
  CHECK(kept[0] == KeptSets{{1, 3}, {1, 3}});
  CHECK(kept[1] == kept[0]);
}

TEST_CASE("kascade reads what its definition reads, for every choice of heads and anchors") {
  const Model model(6);
  for (const char* match : {"closest", "same", "pooled"}) {
    for (const auto& [every, first] : {std::pair<Index, Index>{2, 1}, {3, 0}, {4, 2}, {1, 0}}) {
      for (const Index budget : {1, 6, 36}) {
        CAPTURE(std::string(match));
        CAPTURE(every);
        CAPTURE(budget);
        Rule rule{.budget = budget, .every = every, .first = first, .match = match};
        for (const bool whole : {true, false}) {
          rule.whole = whole;
          CHECK(kept_in_scope("kascade", model.streams, kPrompt, given(rule)) ==
                model.expected(6, rule));
        }
      }
    }
  }
}

TEST_CASE("kascade matches heads that are not of one number") {
  // Head h of layer 2 has the keys and queries of head 2 - h of layer 1.
  Model model(3);
  for (std::size_t h = 0; h < kHeads; ++h) {
    Stream& copy = model.owned[2 * kHeads + h]->stream;
    const Stream& of = *model.at(1, kHeads - 1 - h);
    copy.keys = of.keys;
    copy.queries = of.queries;
  }
  const auto kept = kept_in_scope("kascade", model.streams, kPrompt, given({}));
  for (std::size_t h = 0; h < kHeads; ++h) {
    CHECK(kept[2 * kHeads + h] == kept[kHeads + (kHeads - 1 - h)]);
    const Derived derived = model.derived("kascade", kPrompt, given({}), 2 * kHeads + h);
    CHECK(derived_real(derived, "anchor_head") == static_cast<double>(kHeads - 1 - h));
    CHECK(derived_real(derived, "anchor") == 1.0);
  }
}

TEST_CASE("the overlap is the fraction of a head's own best tokens that it reads") {
  const Model model(3);
  const Rule rule{.match = "same"};
  const AlgorithmDescription& algorithm = algorithm_named("kascade");
  Stepper stepper(*model.at(2, 1), kPrompt, algorithm, params_for(algorithm, given(rule)), 0, 0,
                  model.streams);
  Real sum = 0;
  for (Index row = kPrompt; stepper.next(); ++row) {
    const std::vector<Index> own = best_of(shares_of({model.at(2, 1)}, row), rule.budget);
    std::vector<Index> common;
    std::ranges::set_intersection(own, kept_tokens(stepper.sketch()), std::back_inserter(common));
    sum += static_cast<Real>(common.size()) / static_cast<Real>(own.size());
  }
  const double expected = static_cast<double>(sum / (kTokens - kPrompt));
  CHECK(expected > 0.1);
  CHECK(expected < 0.9);
  CHECK(derived_real(stepper.algorithm().derived(), "overlap") == doctest::Approx(expected));
}

TEST_CASE("anchors are counted among the layers of the scope") {
  Model model(6);
  const Given setting = given({.every = 3, .first = 1});
  const auto whole = kept_in_scope("kascade", model.streams, kPrompt, setting);
  for (const auto& owned : model.owned) owned->stream.id.layer *= 5;  // 0, 5, 10, ..
  CHECK(kept_in_scope("kascade", model.streams, kPrompt, setting) == whole);
  CHECK(derived_real(model.derived("kascade", kPrompt, setting, 5 * kHeads), "anchor") == 20.0);
}

TEST_CASE("kascade is skipped on sliding layers, and without the rows that match heads") {
  StreamShape shape = make_stream({.tokens = kTokens, .d = 4, .dv = 2})->stream.shape;
  CHECK(skip_of("kascade", shape, kPrompt, given({})).empty());
  shape.first_query = 25;
  CHECK(!skip_of("kascade", shape, kPrompt, given({})).empty());
  CHECK(skip_of("kascade", shape, kPrompt, given({.window = 5})).empty());
  CHECK(skip_of("kascade", shape, kPrompt, given({.match = "pooled"})).empty());
  shape.window = 10;
  CHECK(skip_of("kascade", shape, kPrompt, given({.window = 5})).find("sliding") !=
        std::string::npos);
}

}  // namespace kascade_test
}  // namespace kvbench::test
