// Other methods' scores in adakv and criticalkv: against kvpress's rules written out, and the
// methods themselves.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/layer_of_streams.hpp"
#include "support/naive_expected.hpp"

namespace kvbench::test {
namespace token_scores_test {

using Reals = std::vector<Real>;
using Sets = std::vector<std::vector<Index>>;
constexpr Real kAlways = std::numeric_limits<Real>::infinity();

struct Rule {
  std::string score = "knorm";
  Index budget = 20;
  Index window = 0;
  double floor = 0.2;  // adakv's
  double share = 0.5;  // criticalkv's
};

Real length_of(const double* x, Index n) {
  Real sum = 0;
  for (Index k = 0; k < n; ++k) sum += static_cast<Real>(x[k]) * x[k];
  return std::sqrt(sum);
}

// Scores of the visible prompt's tokens; infinite for those that stay whatever their score.
Reals naive_scores(const Stream& stream, Index prompt, const Rule& rule, bool value_norm) {
  const Index first = std::min(stream.shape.first_visible(prompt), prompt);
  const Index d = stream.shape.d;
  Reals out;
  Reals anchor(static_cast<std::size_t>(d), 0);
  for (Index j = first; j < prompt; ++j) {
    for (Index k = 0; k < d; ++k) {
      anchor[k] += stream.keys(j, k) / length_of(stream.keys.row(j), d);
    }
  }
  Real anchor_length = 0;
  for (const Real x : anchor) anchor_length += x * x;
  for (Index j = first; j < prompt; ++j) {
    const Real length = length_of(stream.keys.row(j), d);
    Real dot = 0;
    for (Index k = 0; k < d; ++k) dot += anchor[k] * stream.keys(j, k);
    out.push_back(rule.score == "knorm" ? -length : -dot / length / std::sqrt(anchor_length));
  }
  if (rule.score == "expected_attention") {
    const Index from = std::max<Index>(4, first);
    const Reals expected = naive_expected_attention(stream, from, prompt, {});
    out.assign(out.size(), kAlways);
    for (Index j = from; j < prompt; ++j) {
      Real& score = out[j - first];
      score = expected[j - from];
      if (value_norm) score *= length_of(stream.values.row(j), stream.shape.dv);
    }
  }
  for (Index k = 0; k < rule.window; ++k)
    out[out.size() - 1 - static_cast<std::size_t>(k)] = kAlways;
  return out;
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

// The best of each head up to the floor, then the best of all heads.
Sets naive_ada(const LayerOfStreams& layer, Index prompt, const Rule& rule) {
  std::vector<Entry> all;
  const auto safe =
      rule.floor > 0.0
          ? std::max<Index>(1, static_cast<Index>(static_cast<double>(rule.budget) * rule.floor))
          : Index{0};
  for (std::size_t h = 0; h < layer.streams.size(); ++h) {
    const Reals scores = naive_scores(*layer.streams[h], prompt, rule, true);
    std::vector<Entry> head;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const Index first = prompt - std::ssize(scores);
      head.push_back({scores[j], h, first + static_cast<Index>(j)});
    }
    std::sort(head.begin(), head.end(), before);
    for (Index k = 0; k < safe; ++k) head[k].score = kAlways;
    all.insert(all.end(), head.begin(), head.end());
  }
  std::sort(all.begin(), all.end(), before);
  Sets out(layer.streams.size());
  for (Index k = 0; k < std::ssize(out) * rule.budget; ++k) {
    const Entry& entry = all[k];
    out[entry.head].push_back(entry.token);
  }
  for (auto& kept : out) std::sort(kept.begin(), kept.end());
  return out;
}

// The best int(budget share) by score, at least one if share is not 0, then by
// (score + 1e-4) |v|_1.
Sets naive_critical(const LayerOfStreams& layer, Index prompt, const Rule& rule) {
  Sets out;
  for (const Stream* stream : layer.streams) {
    const Reals scores = naive_scores(*stream, prompt, rule, false);
    const Index first = prompt - std::ssize(scores);
    std::vector<Entry> all;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      all.push_back({scores[j], 0, first + static_cast<Index>(j)});
    }
    std::sort(all.begin(), all.end(), before);
    const auto by_score =
        rule.share > 0.0
            ? std::max<Index>(1, static_cast<Index>(static_cast<double>(rule.budget) * rule.share))
            : Index{0};
    for (Index k = 0; k < std::ssize(all); ++k) {
      Entry& entry = all[k];
      if (k < by_score || entry.score == kAlways) {
        entry.score = kAlways;
        continue;
      }
      Real size = 0;
      for (Index c = 0; c < stream->shape.dv; ++c)
        size += std::fabs(stream->values(entry.token, c));
      entry.score = (entry.score + 1e-4) * size;
    }
    std::sort(all.begin(), all.end(), before);
    std::vector<Index>& kept = out.emplace_back();
    for (Index k = 0; k < rule.budget; ++k) kept.push_back(all[k].token);
    std::sort(kept.begin(), kept.end());
  }
  return out;
}

Given ada(const Rule& rule) {
  return {{"budget", count_of(rule.budget)},
          {"window", count_of(rule.window)},
          {"floor", number(rule.floor)},
          {"semantics", word_of("kvpress")},
          {"score", word_of(rule.score)}};
}

Given critical(const Rule& rule) {
  return {{"budget", count_of(rule.budget)},
          {"window", count_of(rule.window)},
          {"share", number(rule.share)},
          {"norm", word_of("value_l1")},
          {"score", word_of(rule.score)}};
}

std::vector<StreamSpec> specs() {
  return {{.tokens = 80, .d = 6, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2},
          {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 3, .window = 45, .rope_pairs = 2}};
}

TEST_CASE("adakv and criticalkv keep what kvpress's rules keep, by every score") {
  for (const StreamSpec& spec : specs()) {
    const LayerOfStreams layer(spec, 3);
    for (const char* score : {"knorm", "keydiff", "expected_attention"}) {
      for (const Index window : {0, 5}) {
        for (const Index budget : {12, 30}) {
          CAPTURE(score);
          CAPTURE(window);
          CAPTURE(budget);
          CAPTURE(spec.window);
          for (const double part : {0.0, 0.3, 0.8}) {
            CAPTURE(part);
            const Rule rule{score, budget, window, part, part};
            CHECK(layer.kept("adakv", 70, ada(rule)) == naive_ada(layer, 70, rule));
            CHECK(layer.kept("criticalkv", 70, critical(rule)) == naive_critical(layer, 70, rule));
          }
        }
      }
    }
  }
}

TEST_CASE("scores that overflow fail the layer") {
  LayerOfStreams layer(specs().front(), 2);
  for (double& x : layer.owned.front()->keys) x *= 1e160;
  for (const char* score : {"knorm", "keydiff"}) {
    CAPTURE(std::string(score));
    CHECK_THROWS_AS(layer.kept("adakv", 70, ada({score, 20, 0})), CellError);
    CHECK_THROWS_AS(layer.kept("criticalkv", 70, critical({score, 20, 0})), CellError);
  }
}

TEST_CASE("a window of 0 is for other scores than snapkv's, and each score says what it lacks") {
  for (const char* id : {"adakv", "criticalkv"}) {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    const auto refused = [&](const char* score) {
      const auto clause = algorithm.validate(params_for(
          algorithm,
          {{"budget", count_of(20)}, {"window", count_of(0)}, {"score", word_of(score)}}));
      return clause ? clause->first : "";
    };
    CHECK(refused("snapkv") == "window");
    CHECK(refused("knorm").empty());
    StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
    shape.wo_v_l1 = true;
    const auto skip = [&](const char* score, Index budget) {
      return skip_of(
          id, shape, 40,
          {{"budget", count_of(budget)}, {"window", count_of(8)}, {"score", word_of(score)}});
    };
    shape.first_query = 35;
    CHECK(skip("knorm", 20).empty());
    CHECK(skip("keydiff", 8).empty());
    CHECK(!skip("keydiff", 7).empty());
    CHECK(!skip("snapkv", 20).empty());
    CHECK(skip("expected_attention", 20).find("RoPE") != std::string::npos);
    shape.rope = std::make_shared<Rope>();
    CHECK(skip("expected_attention", 20).find("rows 4 to 39") != std::string::npos);
    shape.first_query = 4;
    CHECK(skip("expected_attention", 20).empty());
    CHECK(!skip("expected_attention", 11).empty());
  }
}

}  // namespace token_scores_test
}  // namespace kvbench::test
