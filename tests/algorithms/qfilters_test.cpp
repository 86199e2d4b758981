// qfilters: the main direction of queries, its sign, and which tokens stay once and streaming.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/naive_ranking.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace qfilters_test {

Given qfilters(Index budget, Index sinks = 0, Index recent = 0, const char* semantics = "once") {
  return {{"budget", count_of(budget)},
          {"sinks", count_of(sinks)},
          {"recent", count_of(recent)},
          {"semantics", word_of(semantics)}};
}

using Vector = std::vector<Real>;
using Square = std::vector<Vector>;

Square times(const Square& a, const Square& b) {
  Square out(a.size(), Vector(a.size(), 0));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a.size(); ++j) {
      for (std::size_t k = 0; k < a.size(); ++k) out[i][j] += a[i][k] * b[k][j];
    }
  }
  return out;
}

// The main direction of rows of queries: a column of a high power of their Gram matrix.
Vector naive_direction(const Stream& stream, int g, Index first, Index last) {
  const auto d = static_cast<std::size_t>(stream.shape.d);
  Square power(d, Vector(d, 0));
  for (Index i = first; i < last; ++i) {
    for (std::size_t a = 0; a < d; ++a) {
      for (std::size_t b = 0; b < d; ++b) {
        power[a][b] += static_cast<Real>(stream.query(g, i)[a]) * stream.query(g, i)[b];
      }
    }
  }
  for (int squaring = 0; squaring < 50; ++squaring) {
    Real most = 0;
    for (const Vector& row : power) {
      for (const Real x : row) most = std::max(most, std::fabs(x));
    }
    for (Vector& row : power) {
      for (Real& x : row) x /= most;
    }
    power = times(power, power);
  }
  Vector best;
  Real longest = 0;
  for (const Vector& row : power) {
    Real square = 0;
    for (const Real x : row) square += x * x;
    if (square <= longest) continue;
    longest = square;
    best = row;
  }
  for (Real& x : best) x /= std::sqrt(longest);
  Index positive = 0;
  for (Index i = first; i < last; ++i) {
    Real projection = 0;
    for (std::size_t k = 0; k < d; ++k) projection += best[k] * stream.query(g, i)[k];
    positive += projection > 0 ? 1 : 0;
  }
  if (2 * positive < last - first) {
    for (Real& x : best) x = -x;
  }
  return best;
}

NaiveScores naive_projections(const Stream& stream, Index prompt) {
  const std::vector<Index> visible = naive_visible_prompt(stream, prompt);
  Vector filter(static_cast<std::size_t>(stream.shape.d), 0);
  for (int g = 0; g < stream.shape.heads_per_kv && !visible.empty(); ++g) {
    const Vector f = naive_direction(stream, g, visible.front(), prompt);
    for (std::size_t k = 0; k < f.size(); ++k) filter[k] += f[k] / stream.shape.heads_per_kv;
  }
  return [&stream, filter](const std::vector<Index>& tokens) {
    Vector scores;
    for (const Index token : tokens) {
      Real dot = 0;
      for (std::size_t k = 0; k < filter.size(); ++k) {
        dot += filter[k] * stream.keys(token, static_cast<Index>(k));
      }
      scores.push_back(dot);
    }
    return scores;
  };
}

TEST_CASE("qfilters, worked: queries along an axis, two of three forth") {
  // The Gram matrix of the prompt's queries is diagonal, 14 and 0: the direction is the
  // first axis, and two of the queries point along it. Row 3's query is none of the prompt's.
  const Rows upright{{2, 0}, {-3, 0}, {1, 0}, {0, 99}, {0, 99}};
  const Rows keys{{1, 50}, {3, 0}, {2, -7}, {4, 4}, {0, 0}};
  const auto owned = stream_of(keys, Rows(5, {1.0}), {upright});
  const auto kept = [&](const Given& given) {
    return kept_by("qfilters", owned->stream, 3, given);
  };
  CHECK(kept(qfilters(1)) == KeptSets{{1, 3}, {1, 3, 4}});
  CHECK(kept(qfilters(2)).front() == std::vector<Index>{1, 2, 3});
  CHECK(kept(qfilters(2, 1)).front() == std::vector<Index>{0, 1, 3});
  CHECK(kept(qfilters(1, 0, 0, "streaming")) == KeptSets{{1, 3}, {3, 4}});
  CHECK(kept(qfilters(2, 0, 1, "streaming")) == KeptSets{{1, 2, 3}, {1, 3, 4}});
  // Other signs of all queries: the other end of the keys.
  Rows turned = upright;
  for (auto& row : turned) row[0] = -row[0];
  const auto other = stream_of(keys, Rows(5, {1.0}), {turned});
  CHECK(kept_by("qfilters", other->stream, 3, qfilters(1)).front() == std::vector<Index>{0, 3});
  // Two heads, along the axes: (1/2, 1/2): the sums of the keys' numbers.
  Rows across = upright;
  for (auto& row : across) std::swap(row[0], row[1]);
  const auto two = stream_of(keys, Rows(5, {1.0}), {upright, across});
  CHECK(kept_by("qfilters", two->stream, 3, qfilters(1)).front() == std::vector<Index>{0, 3});
  CHECK(kept_by("qfilters", two->stream, 3, qfilters(2)).front() == std::vector<Index>{0, 1, 3});
}

TEST_CASE("qfilters keeps what its definition keeps, once and streaming") {
  Index ran = 0;
  for (const StreamSpec& spec :
       std::vector<StreamSpec>{{.tokens = 50, .d = 5, .dv = 3, .heads_per_kv = 3},
                               {.tokens = 50, .d = 5, .dv = 3, .window = 17},
                               {.tokens = 50, .d = 1, .dv = 3, .heads_per_kv = 2},
                               {.tokens = 50, .d = 16, .dv = 2, .kind = StreamKind::kClustered}}) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    for (const Index prompt : {0, 1, 7, 31, 48}) {
      const NaiveScores scores = naive_projections(stream, prompt);
      for (const Index budget : {1, 6, 12, 30, 60}) {
        for (const auto& [sinks, recent] :
             {std::pair<Index, Index>{0, 0}, {3, 0}, {0, 4}, {2, 4}}) {
          CAPTURE(spec.d);
          CAPTURE(spec.window);
          CAPTURE(prompt);
          CAPTURE(budget);
          const NaiveCut cut{budget, sinks, recent};
          const Given once = qfilters(budget, sinks, recent);
          if (skip_of("qfilters", stream.shape, prompt, once).empty()) {
            CHECK(kept_by("qfilters", stream, prompt, once) ==
                  naive_once(stream, prompt, cut, scores));
            ++ran;
          }
          const Given streaming = qfilters(budget, sinks, recent, "streaming");
          if (skip_of("qfilters", stream.shape, prompt, streaming).empty()) {
            CHECK(kept_by("qfilters", stream, prompt, streaming) ==
                  naive_streaming_cut(stream, prompt, cut, scores));
            ++ran;
          }
        }
      }
    }
  }
  CHECK(ran > 400);
}

TEST_CASE("queries without a main direction fail the cell") {
  const AlgorithmDescription& algorithm = algorithm_named("qfilters");
  const auto reason = [&](const Rows& queries) -> std::string {
    const auto owned = stream_of(Rows(4, {1.0, 2.0}), Rows(4, {1.0}), {queries});
    try {
      replay_one(owned->stream, 3, algorithm, params_for(algorithm, qfilters(1)));
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(reason({{1, 0}, {0, 1}, {0, 0}, {1, 0}}).find("main direction") != std::string::npos);
  CHECK(reason({{0, 0}, {0, 0}, {0, 0}, {1, 0}}).find("main direction") != std::string::npos);
  CHECK(reason({{1, 0}, {0, 1.0000001}, {0, 0}, {1, 0}}).empty());
}

TEST_CASE("qfilters is skipped without queries of the prompt, or with too small a budget") {
  StreamShape shape = make_stream({.tokens = 60})->stream.shape;
  for (const char* semantics : {"once", "streaming"}) {
    CHECK(skip_of("qfilters", shape, 40, qfilters(7, 3, 4, semantics)).empty());
    CHECK(!skip_of("qfilters", shape, 40, qfilters(6, 3, 4, semantics)).empty());
  }
  CHECK(skip_of("qfilters", shape, 0, qfilters(7)).empty());
  CHECK(!skip_of("qfilters", shape, 0, qfilters(7, 0, 0, "streaming")).empty());
  shape.first_query = 1;
  CHECK(!skip_of("qfilters", shape, 40, qfilters(7)).empty());
  CHECK(skip_of("qfilters", shape, 40, qfilters(40)).empty());
  CHECK(!skip_of("qfilters", shape, 40, qfilters(40, 0, 0, "streaming")).empty());
}

}  // namespace qfilters_test
}  // namespace kvbench::test
