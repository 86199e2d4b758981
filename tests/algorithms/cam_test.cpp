// cam: its set is streaming_llm's, its values those of a list of rows that is shifted and merged
// position by position.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "numerics/counter_rng.hpp"
#include "support/given.hpp"
#include "support/library_answer.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace cam_test {

struct Rule {
  Index budget = 10;
  Index sinks = 2;
  Index merge = 4;
  std::string draw = "expected";
  std::string group = "mean";

  Given given() const {
    return {{"budget", count_of(budget)},
            {"sinks", count_of(sinks)},
            {"merge", count_of(merge)},
            {"draw", word_of(draw)},
            {"group", word_of(group)}};
  }
};

struct Held {
  Index token;
  Real score;
  std::vector<Real> value;
};

// The tokens that are held at each row's answer, from token 0 on. `part`: of its value that token e
// gives.
using Part = std::function<Real(Index e, Real probability)>;

std::vector<std::vector<Held>> naive_cam(const Stream& stream, const Rule& rule, const Part& part) {
  std::vector<Held> held;
  std::vector<std::vector<Held>> out;
  const Index recent = rule.budget - rule.sinks;
  for (Index row = 0; row < stream.shape.tokens; ++row) {
    const double* v = stream.values.row(row);
    held.push_back({row, 0, std::vector<Real>(v, v + stream.shape.dv)});
    std::erase_if(held, [&](const Held& h) { return h.token < stream.shape.first_visible(row); });
    out.push_back(held);

    std::vector<std::vector<Real>> a;  // [G][held]
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      std::vector<Real>& p = a.emplace_back();
      Real max = naive_sink(stream, g);
      for (const Held& h : held) p.push_back(naive_logit(stream, g, row, h.token));
      for (const Real x : p) max = std::max(max, x);
      Real sum = std::exp(naive_sink(stream, g) - max);
      for (Real& x : p) sum += x = std::exp(x - max);
      for (Real& x : p) x /= sum;
    }
    for (std::size_t j = 0; j < held.size(); ++j) {
      Real score = a[0][j];
      for (std::size_t g = 1; g < a.size(); ++g) {
        score = rule.group == "max" ? std::max(score, a[g][j]) : score + a[g][j];
      }
      held[j].score += rule.group == "mean" ? score / static_cast<Real>(a.size()) : score;
    }
    const auto leaves = std::find_if(held.begin(), held.end(), [&](const Held& h) {
      return h.token >= rule.sinks && h.token == row - recent;
    });
    if (leaves == held.end()) continue;
    const auto end = leaves + 1 + std::min<Index>(rule.merge, held.end() - leaves - 1);
    Real mean = 0;
    for (auto h = leaves + 1; h != end; ++h) mean += h->score;
    mean /= static_cast<Real>(end - leaves - 1);
    const Real ratio = leaves->score == 0 && mean == 0 ? 0 : leaves->score / mean;
    const Real given = part(leaves->token, std::clamp<Real>(ratio, 0, 1));
    for (auto h = leaves + 1; h != end; ++h) {
      for (std::size_t k = 0; k < h->value.size(); ++k) {
        h->value[k] += given * leaves->value[k] / static_cast<Real>(rule.merge);
      }
    }
    held.erase(leaves);
  }
  return out;
}

Part part_of(const Stream& stream, const std::string& draw, std::uint32_t seed) {
  if (draw == "none") return [](Index, Real) { return Real{0}; };
  if (draw == "expected") return [](Index, Real p) { return p; };
  const CounterRng random(seed, stream.id.hash(), "cam/merge");
  return [random](Index e, Real p) -> Real {
    return random.uniform53(static_cast<std::uint32_t>(e)) < p ? 1 : 0;
  };
}

double value_of(const Sketch& sketch, const Stream& stream, const SketchRow& row, Index k) {
  return row.own_value < 0 ? stream.values(row.token, k) : sketch.own_values[row.own_value][k];
}

// The largest difference of a value to the naive one; infinite where other tokens are held.
double difference(const Stream& stream, Index prompt, const Rule& rule, const Rule& naive_rule,
                  std::uint32_t seed = 0) {
  const std::vector<Sketch> ours = sketches_of("cam", stream, prompt, rule.given(), seed);
  const auto naive = naive_cam(stream, naive_rule, part_of(stream, naive_rule.draw, seed));
  if (std::ssize(ours) != stream.shape.tokens - prompt) return INFINITY;
  double worst = 0.0;
  for (std::size_t r = 0; r < ours.size(); ++r) {
    const std::vector<Held>& held = naive[static_cast<std::size_t>(prompt) + r];
    if (ours[r].size() != std::ssize(held)) return INFINITY;
    for (std::size_t j = 0; j < held.size(); ++j) {
      const SketchRow& row = ours[r][static_cast<Index>(j)];
      if (row.token != held[j].token || row.w_num != 1.0 || row.w_den != 1.0) return INFINITY;
      for (Index k = 0; k < stream.shape.dv; ++k) {
        const Real apart = value_of(ours[r], stream, row, k) - held[j].value[k];
        worst = std::max(worst, static_cast<double>(std::fabs(apart)));
      }
    }
  }
  return worst;
}

TEST_CASE("cam, worked: values of evicted tokens go on with all that they were given") {
  // All logits are 0; budget 3, one sink, two recent tokens, merge 2. Row i attends to at most four
  // tokens; older tokens have larger scores, so that every probability is 1.
  // After row 3 token 1 leaves: half of 2 to tokens 2 and 3. After row 4 token 2: half of 4 + 1 to
  // tokens 3 and 4. After row 5 token 3: half of 8 + 1 + 2.5 to tokens 4 and 5.
  const Rows zeros(7, {0.0});
  const auto owned = stream_of(zeros, {{1}, {2}, {4}, {8}, {16}, {32}, {64}}, {zeros});
  const Rule rule{.budget = 3, .sinks = 1, .merge = 2};
  for (const char* draw : {"bernoulli", "expected"}) {
    Rule drawn = rule;
    drawn.draw = draw;
    const std::vector<Sketch> rows = sketches_of("cam", owned->stream, 4, drawn.given());
    REQUIRE(rows.size() == 3);
    const auto values = [&](std::size_t r) {
      std::vector<double> out;
      for (const SketchRow& row : rows[r].rows()) {
        out.push_back(value_of(rows[r], owned->stream, row, 0));
      }
      return out;
    };
    CHECK(kept_tokens(rows[0]) == std::vector<Index>{0, 2, 3, 4});
    CHECK(values(0) == std::vector<double>{1, 5, 9, 16});
    CHECK(values(1) == std::vector<double>{1, 11.5, 18.5, 32});
    CHECK(values(2) == std::vector<double>{1, 24.25, 37.75, 64});
    CHECK(library_answer(owned->stream, 0, 4, rows[0]).answer[0] == doctest::Approx(31.0 / 4.0));
  }
}

TEST_CASE("cam, worked: the probability is the score over the mean score of the next tokens") {
  // No sink, budget 2: rows attend to three tokens. Token 0 has logit ln 1, token 1 ln 3, token 2
  // ln 2 in every row. Scores before token 0 leaves, after row 2: token 0 1 + 1/4 + 1/6 = 17/12,
  // token 1 3/4 + 1/2 = 5/4, token 2 1/3; mean of the two: 19/24. p = 1: 17/12 > 19/24.
  // With merge 1: 17/12 > 5/4 as well. From the other end: logits ln 1, ln 9, ln 9: token 0
  // 1 + 1/10 + 1/19, token 1 9/10 + 9/19, merge 1: p = (209 + 10) / 190 / (261 / 190) = 219 / 261.
  const Rows keys = {{0.0}, {std::log(9.0)}, {std::log(9.0)}, {0.0}};
  const auto owned = stream_of(keys, {{1}, {0}, {0}, {0}}, {Rows(4, {1.0})});
  const Sketch row =
      sketches_of("cam", owned->stream, 3, Rule{.budget = 2, .sinks = 0, .merge = 1}.given())
          .front();
  CHECK(kept_tokens(row) == std::vector<Index>{1, 2, 3});
  CHECK(value_of(row, owned->stream, row[0], 0) == doctest::Approx(219.0 / 261.0).epsilon(1e-14));
  CHECK(row[1].own_value < 0);
}

TEST_CASE("cam holds and merges what the naive list does, on every kind of stream") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 80, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 80, .d = 32, .dv = 3},
      {.tokens = 80, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
      {.tokens = 150, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 30},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 37}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {Index{0}, Index{1}, Index{37}, spec.tokens - 1}) {
      for (const Index budget : {3, 10, 28, 40, 200}) {
        for (const Index sinks : {0, 2}) {
          for (const Index merge : {1, 4, 16}) {
            for (const char* draw : {"bernoulli", "expected", "none"}) {
              CAPTURE(spec.window);
              CAPTURE(prompt);
              CAPTURE(budget);
              CAPTURE(sinks);
              CAPTURE(merge);
              CAPTURE(std::string(draw));
              const Rule rule{budget, sinks, merge, draw, "mean"};
              CHECK(difference(owned->stream, prompt, rule, rule, 7) < 1e-12);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cam needs every query to merge, and room beside the sinks") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  CHECK(skip_of("cam", shape, 40, Rule{.budget = 3}.given()).empty());
  CHECK(!skip_of("cam", shape, 40, Rule{.budget = 2}.given()).empty());
  shape.first_query = 1;
  CHECK(!skip_of("cam", shape, 40, Rule{}.given()).empty());
  CHECK(skip_of("cam", shape, 40, Rule{.draw = "none"}.given()).empty());
}

}  // namespace cam_test
}  // namespace kvbench::test
