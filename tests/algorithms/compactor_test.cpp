// compactor: leverage scores of keys before rotation, attention within chunks, and their blend over
// the KV heads of a layer.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "algorithms/mechanisms/budget.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/logit_noise.hpp"
#include "support/given.hpp"
#include "support/naive_matching.hpp"
#include "support/owned_stream.hpp"
#include "support/rope_stream.hpp"

namespace kvbench::test {
namespace compactor_test {

struct Setting {
  Index budget = 12;
  Index sinks = 2;
  Index recent = 3;
  Index chunk = 7;
  Index sketch = 0;
  std::string score = "both";
  double blend = -1.0;  // auto
};

Given given_of(const Setting& s) {
  Given out{{"budget", count_of(s.budget)}, {"sinks", count_of(s.sinks)},
            {"recent", count_of(s.recent)}, {"chunk", count_of(s.chunk)},
            {"sketch", count_of(s.sketch)}, {"score", word_of(s.score)}};
  if (s.blend >= 0.0) out.emplace_back("blend", number(s.blend));
  return out;
}

using Reals = std::vector<Real>;

Reals naive_leverage(const Stream& plain, PromptRange tokens, const Setting& s,
                     std::uint32_t seed) {
  const Index d = plain.shape.d;
  RealRows x;
  Reals mean(static_cast<std::size_t>(d), 0);
  for (Index j = tokens.first; j < tokens.last; ++j) {
    Reals& key = x.emplace_back(plain.keys.row(j), plain.keys.row(j) + d);
    for (std::size_t c = 0; c < key.size(); ++c) {
      mean[c] += key[c] / static_cast<Real>(tokens.size());
    }
  }
  const CounterRng random(seed, plain.id.hash(), "compactor/sketch");
  for (Reals& key : x) {
    for (std::size_t c = 0; c < key.size(); ++c) key[c] -= mean[c];
    if (s.sketch == 0) continue;
    Reals sketched(static_cast<std::size_t>(s.sketch), 0);
    for (std::size_t k = 0; k < sketched.size(); ++k) {
      for (std::size_t c = 0; c < key.size(); ++c) {
        const double normal = normal_quantile(
            random.uniform53(static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(c)));
        sketched[k] += key[c] * normal / std::sqrt(static_cast<Real>(s.sketch));
      }
    }
    key = sketched;
  }
  // x^T (X^T X + I / 100)^-1 x: the fitted value of the unit vector of x's row in a ridge
  // regression on X.
  Reals out;
  for (std::size_t j = 0; j < x.size(); ++j) {
    RealRows unit(x.size(), Reals{0});
    unit[j][0] = 1;
    const RealRows fitted = naive_least_squares(x, unit, 0.01L);
    Real sum = 0;
    for (std::size_t k = 0; k < x[j].size(); ++k) sum += x[j][k] * fitted[k][0];
    out.push_back(sum);
  }
  return out;
}

// Chunks filled up with zeros, masks and all.
Reals naive_attention(const Stream& stream, PromptRange tokens, const Setting& s) {
  const Index count = tokens.size();
  Reals scores(static_cast<std::size_t>(count), 0);
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    for (Index first = 0; first < count; first += s.chunk) {
      for (Index r = first; r < first + s.chunk; ++r) {
        Reals logits;
        for (Index j = first; j < first + s.chunk; ++j) {
          Real x = 0;
          for (Index c = 0; c < stream.shape.d && r < count && j < count; ++c) {
            x += static_cast<Real>(stream.query(g, tokens.first + r)[c]) *
                 stream.keys(tokens.first + j, c);
          }
          logits.push_back(j < count ? x : -1e-9L);
        }
        const Real most = *std::max_element(logits.begin(), logits.end());
        Real sum = 0;
        for (Real& x : logits) sum += x = std::exp(x - most);
        for (Index j = first; j < std::min(count, first + s.chunk); ++j) {
          scores[j] += logits[j - first] / sum;
        }
      }
    }
  }
  for (Index j = 0; j < count; ++j) {
    Real squares = 0;
    for (Index c = 0; c < stream.shape.dv; ++c) {
      squares += static_cast<Real>(stream.values(tokens.first + j, c)) *
                 stream.values(tokens.first + j, c);
    }
    scores[j] *= std::sqrt(squares) / static_cast<Real>(stream.shape.heads_per_kv);
  }
  Reals pooled;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    Real sum = scores[j];
    if (j > 0) sum += scores[j - 1];
    if (j + 1 < scores.size()) sum += scores[j + 1];
    pooled.push_back(sum / 3);
  }
  return pooled;
}

void naive_standardised(std::vector<Reals>& heads) {
  Reals all;
  for (const Reals& head : heads) all.insert(all.end(), head.begin(), head.end());
  Real mean = 0;
  for (const Real x : all) mean += x / static_cast<Real>(all.size());
  Real squares = 0;
  for (const Real x : all) squares += (x - mean) * (x - mean);
  const Real deviation =
      std::max<Real>(1e-6L, std::sqrt(squares / static_cast<Real>(all.size() - 1)));
  for (Reals& head : heads) {
    for (Real& x : head) x = (x - mean) / deviation;
  }
}

// Tokens of the prompt that each stream keeps.
std::vector<std::vector<Index>> naive_kept(const std::vector<RopeStream>& layer, Index prompt,
                                           const Setting& s, std::uint32_t seed) {
  const StreamShape& shape = layer.front().turned->stream.shape;
  const Index visible = std::min(shape.first_visible(prompt), prompt);
  const PromptRange tokens{std::max(s.sinks, visible), prompt - s.recent};
  std::vector<Reals> leverage;
  std::vector<Reals> attention;
  for (const RopeStream& head : layer) {
    leverage.push_back(naive_leverage(head.plain->stream, tokens, s, seed));
    attention.push_back(naive_attention(head.turned->stream, tokens, s));
  }
  naive_standardised(leverage);
  naive_standardised(attention);
  const Real blend =
      s.blend >= 0.0 ? s.blend : 1.0 - static_cast<Real>(s.budget) / static_cast<Real>(prompt);
  std::vector<std::vector<Index>> out;
  for (std::size_t h = 0; h < layer.size(); ++h) {
    Reals scores;
    for (std::size_t j = 0; j < leverage[h].size(); ++j) {
      const Real both = blend * leverage[h][j] + attention[h][j];
      scores.push_back(s.score == "both"       ? both
                       : s.score == "leverage" ? leverage[h][j]
                                               : attention[h][j]);
    }
    std::vector<Index> order;
    for (Index j = 0; j < tokens.size(); ++j) order.push_back(j);
    std::stable_sort(order.begin(), order.end(),
                     [&](Index a, Index b) { return scores[a] > scores[b]; });
    std::vector<Index>& kept = out.emplace_back();
    for (Index j = visible; j < prompt; ++j) {
      if (j < tokens.first || j >= tokens.last) kept.push_back(j);
    }
    const Index room = s.budget - std::ssize(kept);
    for (Index k = 0; k < room; ++k) {
      kept.push_back(tokens.first + order[k]);
    }
    std::sort(kept.begin(), kept.end());
  }
  return out;
}

std::vector<RopeStream> layer_of(StreamSpec spec, int heads) {
  std::vector<RopeStream> layer;
  for (int h = 0; h < heads; ++h) {
    spec.seed += 1;
    layer.push_back(make_rope_stream(spec, 4, h % 2 == 1));
    layer.back().turned->stream.id.kv_head = h;
    layer.back().plain->stream.id.kv_head = h;
  }
  return layer;
}

std::vector<std::vector<Index>> kept_of(const std::vector<RopeStream>& layer, Index prompt,
                                        const Setting& s, std::uint32_t seed) {
  std::vector<const Stream*> streams;
  for (const RopeStream& head : layer) streams.push_back(&head.turned->stream);
  std::vector<std::vector<Index>> out;
  for (const KeptSets& sets : kept_in_scope("compactor", streams, prompt, given_of(s), seed)) {
    REQUIRE(sets.front().back() == prompt);
    out.emplace_back(sets.front().begin(), sets.front().end() - 1);
  }
  return out;
}

TEST_CASE("worked: outlying keys by leverage, attended ones by their chunk") {
  // Frequency 0 turns nothing. Keys less their mean 2 are -2 -1 0 8 -2 -3: token 3 stands out most,
  // then token 5, then 0 before 4.
  const auto owned =
      stream_of({{0}, {1}, {2}, {10}, {0}, {-1}, {5}}, Rows(7, {1.0}), {Rows(7, {0.0})});
  auto rope = std::make_shared<Rope>();
  owned->stream.shape.rope = rope;  // no pair turns
  Setting s{.budget = 2, .sinks = 0, .recent = 0, .chunk = 3, .score = "leverage"};
  const auto kept = [&](Index budget) {
    s.budget = budget;
    std::vector<Index> sets = kept_by("compactor", owned->stream, 6, given_of(s)).front();
    sets.pop_back();
    return sets;
  };
  CHECK(kept(1) == std::vector<Index>{3});
  CHECK(kept(2) == std::vector<Index>{3, 5});
  CHECK(kept(3) == std::vector<Index>{0, 3, 5});
  // Queries of 0 pay each token of their chunk the same: values decide, over three tokens.
  s.score = "attention";
  owned->values = {1, 1, 1, 1, 9, 1, 1};
  owned->connect();
  CHECK(kept(3) == std::vector<Index>{3, 4, 5});
  // A query of ln 4 at token 0 and a key of 1 at token 2: token 2 has 4 / 6 of it.
  owned->values = {1, 1, 1, 1, 1, 1, 1};
  owned->keys = {0, 0, 1, 0, 0, 0, 0};
  owned->queries.front() = {std::log(4), 0, 0, 0, 0, 0, 0};
  owned->connect();
  CHECK(kept(2) == std::vector<Index>{2, 3});
}

TEST_CASE("every score keeps what the dense oracle keeps, for all KV heads of a layer") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 50, .d = 6, .dv = 3, .heads_per_kv = 2, .query_size = 2},
      {.tokens = 50, .d = 4, .dv = 2, .heads_per_kv = 1, .window = 30},
      {.tokens = 50, .d = 5, .dv = 2, .heads_per_kv = 3, .kind = StreamKind::kClustered}};
  for (const StreamSpec& spec : specs) {
    const std::vector<RopeStream> layer = layer_of(spec, 2);
    for (const char* score : {"both", "leverage", "attention"}) {
      for (const Index sketch : {0, 3}) {
        for (const Index chunk : {1, 7, 35, 100}) {
          for (const double blend : {-1.0, 0.3}) {
            CAPTURE(score);
            CAPTURE(sketch);
            CAPTURE(chunk);
            CAPTURE(spec.window);
            const Setting s{.chunk = chunk, .sketch = sketch, .score = score, .blend = blend};
            CHECK(kept_of(layer, 40, s, 5) == naive_kept(layer, 40, s, 5));
          }
        }
      }
    }
  }
}

TEST_CASE("compactor is skipped without RoPE data or the queries it needs") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  const auto skip = [&](const Setting& s) { return skip_of("compactor", shape, 40, given_of(s)); };
  CHECK(skip({}).find("RoPE") != std::string::npos);
  CHECK(skip({.score = "attention"}).empty());
  CHECK(skip({.budget = 40}).empty());
  shape.rope = std::make_shared<Rope>();
  CHECK(skip({}).empty());
  CHECK(!skip({.budget = 4}).empty());
  shape.first_query = 2;
  CHECK(skip({}).empty());
  shape.first_query = 3;
  CHECK(!skip({}).empty());
  CHECK(skip({.score = "leverage"}).empty());
}

}  // namespace compactor_test
}  // namespace kvbench::test
