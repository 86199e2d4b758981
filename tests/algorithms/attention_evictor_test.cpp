// caote and roco, which evict a token after each row by its attention: token by token against dense
// oracles, and what their scores promise.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "support/given.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace attention_evictor_test {

using Tokens = std::vector<Index>;

// Shares of a row's attention over `tokens`, for each query head.
std::vector<std::vector<Real>> naive_shares(const Stream& stream, Index row, const Tokens& tokens) {
  std::vector<std::vector<Real>> out;
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    std::vector<Real>& p = out.emplace_back();
    for (const Index token : tokens) p.push_back(naive_logit(stream, g, row, token));
    const Real sink = naive_sink(stream, g);
    const Real max = std::max(sink, *std::max_element(p.begin(), p.end()));
    Real sum = std::exp(sink - max);
    for (Real& x : p) sum += x = std::exp(x - max);
    for (Real& x : p) x /= sum;
  }
  return out;
}

Real naive_combined(const std::string& group, const std::vector<std::vector<Real>>& of_heads,
                    std::size_t place) {
  Real out = of_heads[0][place];
  for (std::size_t g = 1; g < of_heads.size(); ++g) {
    out = group == "max" ? std::max(out, of_heads[g][place]) : out + of_heads[g][place];
  }
  return group == "mean" ? out / static_cast<Real>(of_heads.size()) : out;
}

Tokens range(Index first, Index last) {
  Tokens out;
  for (Index j = first; j < last; ++j) out.push_back(j);
  return out;
}

// `seen(row, tokens)`: every row that was answered; `going(row, tokens, count)`: the tokens that go
// after a row.
struct NaiveEvictor {
  std::function<void(Index row, const Tokens&)> seen;
  std::function<std::set<Index>(Index row, const Tokens&, Index count)> going;
};

KeptSets naive_evicted(const Stream& stream, Index prompt, Index budget,
                       const NaiveEvictor& evictor) {
  const StreamShape& shape = stream.shape;
  for (Index row = 0; row < prompt; ++row) {
    evictor.seen(row, range(shape.first_visible(row), row + 1));
  }
  Tokens kept = range(std::min(shape.first_visible(prompt), prompt), prompt);
  const auto evict = [&](Index row) {
    const Index count = std::ssize(kept) - budget;
    if (count <= 0) return;
    const std::set<Index> going = evictor.going(row, kept, count);
    std::erase_if(kept, [&](Index token) { return going.count(token) == 1; });
  };
  evict(prompt - 1);
  KeptSets out;
  for (Index row = prompt; row < shape.tokens; ++row) {
    kept.push_back(row);
    std::erase_if(kept, [&](Index token) { return token < shape.first_visible(row); });
    out.push_back(kept);
    evictor.seen(row, kept);
    evict(row);
  }
  return out;
}

// The `count` of `tokens` with the lowest score, of equal ones the higher tokens.
std::set<Index> lowest(Tokens tokens, Index count, const std::function<Real(Index)>& score) {
  std::sort(tokens.begin(), tokens.end(),
            [&](Index a, Index b) { return score(a) != score(b) ? score(a) < score(b) : a > b; });
  return {tokens.begin(), tokens.begin() + count};
}

KeptSets naive_caote(const Stream& stream, Index prompt, Index budget, const std::string& group) {
  NaiveEvictor evictor;
  evictor.seen = [](Index, const Tokens&) {};
  // The length of the change of the row's answer without a token, from both answers.
  evictor.going = [&](Index row, const Tokens& tokens, Index count) {
    const auto answer = [&](const Tokens& over, std::size_t g) {
      std::vector<Real> z(stream.shape.dv, 0);
      const auto shares = naive_shares(stream, row, over)[g];
      for (std::size_t j = 0; j < over.size(); ++j) {
        for (std::size_t k = 0; k < z.size(); ++k) {
          z[k] += shares[j] * stream.values(over[j], static_cast<Index>(k));
        }
      }
      return z;
    };
    std::vector<std::vector<Real>> changes(static_cast<std::size_t>(stream.shape.heads_per_kv));
    for (std::size_t g = 0; g < changes.size(); ++g) {
      const std::vector<Real> with = answer(tokens, g);
      for (const Index token : tokens) {
        Tokens rest = tokens;
        std::erase(rest, token);
        const std::vector<Real> without = answer(rest, g);
        Real sum = 0;
        for (std::size_t k = 0; k < with.size(); ++k) {
          sum += (with[k] - without[k]) * (with[k] - without[k]);
        }
        changes[g].push_back(std::sqrt(sum));
      }
    }
    std::map<Index, Real> scores;
    for (std::size_t j = 0; j < tokens.size(); ++j) {
      scores[tokens[j]] = naive_combined(group, changes, j);
    }
    return lowest(tokens, count, [&](Index token) { return scores[token]; });
  };
  return naive_evicted(stream, prompt, budget, evictor);
}

struct Roco {
  Index budget = 12;
  double recent_fraction = 0.25;
  double spared_fraction = 0.25;
  std::string group = "mean";

  Given given() const {
    return {{"budget", count_of(budget)},
            {"recent_fraction", number(recent_fraction)},
            {"spared_fraction", number(spared_fraction)},
            {"group", word_of(group)}};
  }
};

KeptSets naive_roco(const Stream& stream, Index prompt, const Roco& rule) {
  std::map<Index, std::vector<Real>> seen;  // every share that a token had
  NaiveEvictor evictor;
  evictor.seen = [&](Index row, const Tokens& tokens) {
    const auto shares = naive_shares(stream, row, tokens);
    for (std::size_t j = 0; j < tokens.size(); ++j) {
      seen[tokens[j]].push_back(naive_combined(rule.group, shares, j));
    }
  };
  const auto mean = [&](Index token) {
    Real sum = 0;
    for (const Real share : seen[token]) sum += share;
    return sum / static_cast<Real>(seen[token].size());
  };
  const auto deviation = [&](Index token) {
    Real sum = 0;
    for (const Real share : seen[token]) sum += (share - mean(token)) * (share - mean(token));
    return std::sqrt(sum / static_cast<Real>(seen[token].size()));
  };
  const auto part = [&](double fraction) {
    return static_cast<Index>(std::floor(static_cast<double>(rule.budget) * fraction));
  };
  evictor.going = [&](Index row, const Tokens& tokens, Index count) {
    Tokens candidates;
    for (const Index token : tokens) {
      if (token <= row - part(rule.recent_fraction)) candidates.push_back(token);
    }
    const Index scope = std::ssize(candidates) - part(rule.spared_fraction);
    const std::set<Index> least = lowest(candidates, scope, deviation);
    return lowest({least.begin(), least.end()}, count, mean);
  };
  return naive_evicted(stream, prompt, rule.budget, evictor);
}

const std::vector<StreamSpec>& specs() {
  static const std::vector<StreamSpec> all = {
      {.tokens = 60, .d = 5, .dv = 3, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 60, .d = 16, .dv = 2},
      {.tokens = 60, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 25},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 27}};
  return all;
}

KeptSets caote(const Stream& stream, Index prompt, Index budget, const std::string& group) {
  return kept_by("caote", stream, prompt,
                 {{"budget", count_of(budget)}, {"group", word_of(group)}});
}

TEST_CASE("caote, worked: what repeats the answer goes, however much attention it has") {
  // Logits 0. Row 3: values 1 3 2 2, answer 2: tokens 2 and 3 change nothing; the later one goes.
  // Row 4: tokens 0 1 2 4, values 1 3 2 6, answer 3: token 1 goes. Row 5: 0 2 4 5 of 1 2 6 -5,
  // answer 1: token 0 goes.
  const Rows zeros(7, {0.0});
  const auto owned = stream_of(zeros, {{1}, {3}, {2}, {2}, {6}, {-5}, {0}}, {zeros});
  const KeptSets expected{{0, 1, 2, 3}, {0, 1, 2, 4}, {0, 2, 4, 5}, {2, 4, 5, 6}};
  CHECK(caote(owned->stream, 3, 3, "mean") == expected);
  // All at once: a prompt of four tokens.
  CHECK(caote(owned->stream, 4, 2, "mean").front() == Tokens{0, 1, 4});
}

TEST_CASE("caote evicts what changes the answer least, on every kind of stream") {
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 30, 55}) {
      for (const Index budget : {1, 8, 24, 70}) {
        for (const char* group : {"mean", "max", "sum"}) {
          CAPTURE(spec.window);
          CAPTURE(prompt);
          CAPTURE(budget);
          CHECK(caote(owned->stream, prompt, budget, group) ==
                naive_caote(owned->stream, prompt, budget, group));
        }
      }
    }
  }
  const auto owned = make_stream(specs().front());
  CHECK(caote(owned->stream, 30, 8, "max") != naive_caote(owned->stream, 30, 8, "mean"));
  CHECK(caote(owned->stream, 30, 8, "mean") != naive_caote(owned->stream, 30, 9, "mean"));
}

TEST_CASE("a token with all of the attention is never the one that changes least") {
  // Logits of 1000 above the others: its share is 1.
  const Rows keys = {{0.0}, {1000.0}, {0.0}, {0.0}, {0.0}};
  const auto owned = stream_of(keys, Rows(5, {1.0}), {Rows(5, {1.0})});
  const KeptSets expected{{0, 1}, {1, 2}, {1, 3}, {1, 4}};
  CHECK(caote(owned->stream, 1, 1, "mean") == expected);
}

TEST_CASE("roco, worked: a variable token stays in place of one with a larger mean") {
  // Key ln 9 of token 0, query -1 in rows 1 and 2: it weighs 1/9 of the others. Shares of token 0:
  // 1, 1/10, 1/19; of token 1: 9/10, 9/19; of token 2: 9/19. Means .38 .69 .47, deviations
  // .44 .21 0.
  const Rows keys = {{std::log(9.0)}, {0.0}, {0.0}, {0.0}};
  const auto owned = stream_of(keys, Rows(4, {1.0}), {{{0.0}, {-1.0}, {-1.0}, {0.0}}});
  const auto first = [&](double recent, double spared) {
    return kept_by("roco", owned->stream, 3, Roco{2, recent, spared}.given()).front();
  };
  // The lowest mean goes.
  CHECK(first(0.0, 0.0) == Tokens{1, 2, 3});
  // Token 0 is spared: of 1 and 2 the lower mean goes.
  CHECK(first(0.0, 0.5) == Tokens{0, 1, 3});
  // Tokens 0 and 1 are spared.
  CHECK(first(0.0, 1.0) == Tokens{0, 1, 3});
  // Token 2 is recent: of 0 and 1 the lower mean goes.
  CHECK(first(0.5, 0.0) == Tokens{1, 2, 3});
  // Token 2 is recent and token 0 spared.
  CHECK(first(0.5, 0.5) == Tokens{0, 2, 3});
}

TEST_CASE("released roco spares the last 10 tokens and int(0.3 budget) - 9 more") {
  const auto owned = make_stream({.tokens = 160, .d = 4, .dv = 2, .heads_per_kv = 2});
  for (const Index prompt : {0, 120}) {
    // Budget 100: 10 recent, 30 + 1 - 10 = 21 spared. Budget 40: 3 spared. Budget 30: none spared.
    const auto released = [&](Index budget) {
      return kept_by("roco", owned->stream, prompt,
                     {{"budget", count_of(budget)}, {"semantics", word_of("released")}});
    };
    CHECK(released(40) == naive_roco(owned->stream, prompt, Roco{40, 0.25, 0.0751}));
    CHECK(released(100) == naive_roco(owned->stream, prompt, Roco{100, 0.1, 0.2101}));
    CHECK(released(100) != naive_roco(owned->stream, prompt, Roco{100, 0.3, 0.3}));
    CHECK(released(30) == naive_roco(owned->stream, prompt, Roco{30, 0.3334, 0.0}));
  }
}

TEST_CASE("roco keeps what the oracle that stores every share keeps") {
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 30, 55}) {
      for (const Index budget : {1, 8, 21, 70}) {
        for (const double recent : {0.0, 0.3, 0.5}) {
          for (const double spared : {0.0, 0.3, 0.5}) {
            for (const char* group : {"mean", "max"}) {
              CAPTURE(spec.window);
              CAPTURE(prompt);
              CAPTURE(budget);
              CAPTURE(recent);
              CAPTURE(spared);
              const Roco rule{budget, recent, spared, group};
              CHECK(kept_by("roco", owned->stream, prompt, rule.given()) ==
                    naive_roco(owned->stream, prompt, rule));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("caote needs the prompt's last query, roco all; shares of roco leave a token") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  const Given twelve{{"budget", count_of(12)}};
  shape.first_query = 39;
  CHECK(skip_of("caote", shape, 40, twelve).empty());
  CHECK(!skip_of("roco", shape, 40, twelve).empty());
  shape.first_query = 40;
  CHECK(!skip_of("caote", shape, 40, twelve).empty());
  // A prompt that fits: each decoded row's.
  const Given all{{"budget", count_of(40)}};
  CHECK(skip_of("caote", shape, 40, all).empty());
  shape.first_query = 41;
  CHECK(skip_of("caote", shape, 40, all) ==
        "needs the queries of rows 40 on, but the dump has only rows 41 to 59");
  const AlgorithmDescription& roco = algorithm_named("roco");
  CHECK(!roco.validate(params_for(roco, Roco{12, 0.5, 0.5}.given())));
  CHECK(roco.validate(params_for(roco, Roco{12, 0.5, 0.6}.given()))->first == "spared_fraction");
}

}  // namespace attention_evictor_test
}  // namespace kvbench::test
