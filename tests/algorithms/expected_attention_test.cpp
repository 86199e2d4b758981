// expected_attention: what queries are before their rotation, their statistics at later positions,
// the expectation itself, and which tokens stay.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "algorithms/mechanisms/expected_queries.hpp"
#include "support/given.hpp"
#include "support/naive_expected.hpp"
#include "support/naive_ranking.hpp"
#include "support/rope_stream.hpp"

namespace kvbench::test {
namespace expected_attention_test {

struct Setting {
  Index budget = 12;
  Index sinks = 4;
  NaiveExpected rule;
  bool value_norm = true;
  double epsilon = 0;
};

Given given_of(const Setting& s) {
  return {{"budget", count_of(s.budget)},      {"sinks", count_of(s.sinks)},
          {"future", count_of(s.rule.future)}, {"covariance", Value{s.rule.covariance}},
          {"value_norm", Value{s.value_norm}}, {"epsilon", number(s.epsilon)}};
}

KeptSets ours(const Stream& stream, Index prompt, const Setting& setting) {
  return kept_by("expected_attention", stream, prompt, given_of(setting));
}

KeptSets naive(const Stream& stream, Index prompt, const Setting& s) {
  return naive_once(stream, prompt, {s.budget, s.sinks, 0}, [&](const std::vector<Index>& tokens) {
    const Index first = std::max(tokens.front(), s.sinks);
    std::vector<Real> scores(first - tokens.front(), 0);
    const std::vector<Real> expected = naive_expected_attention(stream, first, prompt, s.rule);
    for (std::size_t j = 0; j < expected.size(); ++j) {
      Real square = 0;
      for (Index k = 0; k < stream.shape.dv; ++k) {
        const Real x = stream.values(first + static_cast<Index>(j), k);
        square += x * x;
      }
      scores.push_back(s.value_norm ? (expected[j] + s.epsilon) * std::sqrt(square) : expected[j]);
    }
    return scores;
  });
}

RopeStream rope_stream(Index rotated = 6, bool interleaved = false, Index window = 0) {
  return make_rope_stream(
      {.tokens = 60, .d = 7, .dv = 3, .heads_per_kv = 3, .window = window, .query_size = 1.5},
      rotated, interleaved);
}

TEST_CASE("expected_attention, worked: one pair that turns a quarter per position") {
  // Before their rotation all queries are (1, 0). The future is positions 4 and 5: turns by 0 and
  // by a quarter, of mean (1/2, 1/2). Logits: half the sum of a key's numbers; value norms 1 but of
  // token 3.
  auto owned = stream_of({{0, 1}, {8, 0}, {0, 7}, {4, 4}, {1, 1}}, {{1}, {1}, {1}, {-2}, {1}},
                         {{{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, 0}}});
  auto rope = std::make_shared<Rope>();
  rope->inv_freq = {std::acos(-1.0) / 2};
  owned->stream.shape.rope = rope;
  const ExpectedQueries queries = expected_queries(owned->stream, {0, 4}, 4, 2, true);
  CHECK(queries.mean[0][0] == doctest::Approx(0.5));
  CHECK(queries.mean[0][1] == doctest::Approx(0.5));
  for (const double x : queries.covariance[0]) CHECK(std::fabs(x) < 1e-14);
  // e^0.5, e^4, e^3.5, 2 e^4.
  const auto kept = [&](Index budget, bool value_norm) {
    return ours(owned->stream, 4, {budget, 0, {2, true}, value_norm}).front();
  };
  CHECK(kept(1, true) == std::vector<Index>{3, 4});
  CHECK(kept(2, true) == std::vector<Index>{1, 3, 4});
  CHECK(kept(3, true) == std::vector<Index>{1, 2, 3, 4});
  // Turned by the next position alone, (1, 0): logits 0, 8, 0, 4.
  CHECK(ours(owned->stream, 4, {2, 0, {1, true}, false}).front() == std::vector<Index>{1, 3, 4});
  // A sink stays.
  CHECK(ours(owned->stream, 4, {2, 1, {2, true}, true}).front() == std::vector<Index>{0, 3, 4});
}

TEST_CASE("means and covariances are those of the queries that never had a position") {
  for (const bool interleaved : {false, true}) {
    for (const Index rotated : {2, 4, 6}) {
      const RopeStream streams = rope_stream(rotated, interleaved);
      // A future of one position 0 turns nothing.
      const ExpectedQueries queries = expected_queries(streams.turned->stream, {5, 50}, 0, 1, true);
      for (int g = 0; g < 3; ++g) {
        const NaiveMoments plain = naive_moments(streams.plain->stream, g, 5, 50);
        for (std::size_t k = 0; k < plain.mean.size(); ++k) {
          CHECK(std::fabs(queries.mean[g][k] - plain.mean[k]) < 1e-13);
        }
        for (std::size_t i = 0; i < plain.covariance.size(); ++i) {
          CHECK(std::fabs(queries.covariance[g][i] - plain.covariance[i]) < 1e-13);
        }
      }
    }
  }
}

TEST_CASE("expected_attention keeps what its definition keeps, on every stream and setting") {
  Index ran = 0;
  const auto check = [&](const Stream& stream) {
    for (const Index prompt : {0, 1, 3, 20, 59}) {
      for (const Index budget : {4, 10, 30}) {
        for (const bool covariance : {false, true}) {
          for (const Index future : {1, 9, 40}) {
            for (const auto& [value_norm, epsilon] :
                 {std::pair<bool, double>{false, 0.0}, {true, 0.0}, {true, 0.1}}) {
              const Setting setting{budget, 4, {future, covariance}, value_norm, epsilon};
              CAPTURE(prompt);
              CAPTURE(budget);
              CAPTURE(future);
              CHECK(ours(stream, prompt, setting) == naive(stream, prompt, setting));
              ++ran;
            }
          }
        }
      }
    }
  };
  for (const bool interleaved : {false, true}) {
    for (const Index rotated : {2, 6}) check(rope_stream(rotated, interleaved).turned->stream);
  }
  check(rope_stream(6, false, 25).turned->stream);
  CHECK(ran > 1000);
}

TEST_CASE("expected logits are the log of the mean of exp(s <q, k>) over normal queries") {
  const RopeStream streams = rope_stream();
  Stream stream = streams.turned->stream;
  stream.shape.scale = 0.3;
  const ExpectedQueries queries = expected_queries(stream, {4, 50}, 50, 20, true);
  const std::vector<double> y = expected_logits(queries, 1, stream, {10, 13});
  const std::vector<std::vector<Real>> root = naive_cholesky(queries.covariance[1], 7);
  std::mt19937_64 rng(11);
  std::normal_distribution<double> normal;
  constexpr int kDraws = 100000;
  std::vector<double> sum(3);
  std::vector<double> squares(3);
  for (int n = 0; n < kDraws; ++n) {
    std::vector<double> z(7);
    for (double& x : z) x = normal(rng);
    std::vector<double> q = queries.mean[1];
    for (std::size_t a = 0; a < 7; ++a) {
      for (std::size_t b = 0; b <= a; ++b) q[a] += static_cast<double>(root[a][b]) * z[b];
    }
    for (std::size_t j = 0; j < 3; ++j) {
      double x = 0;
      for (std::size_t k = 0; k < 7; ++k) {
        x += 0.3 * q[k] * stream.keys(10 + static_cast<Index>(j), static_cast<Index>(k));
      }
      sum[j] += std::exp(x);
      squares[j] += std::exp(2 * x);
    }
  }
  for (std::size_t j = 0; j < 3; ++j) {
    const double mean = sum[j] / kDraws;
    const double error = std::sqrt((squares[j] / kDraws - mean * mean) / kDraws);
    CHECK(std::fabs(mean - std::exp(y[j])) < 3 * error);
    CHECK(error < 0.02 * mean);
  }
}

TEST_CASE("expected_attention is skipped without RoPE data or queries, unless the prompt fits") {
  StreamShape shape = rope_stream().turned->stream.shape;
  const auto skip = [&](Index budget, Index prompt) {
    Setting setting;
    setting.budget = budget;
    return skip_of("expected_attention", shape, prompt, given_of(setting));
  };
  CHECK(skip(12, 40).empty());
  CHECK(!skip(3, 40).empty());
  shape.first_query = 4;
  CHECK(skip(12, 40).empty());
  shape.first_query = 5;
  CHECK(skip(12, 40).find("queries") != std::string::npos);
  CHECK(skip(40, 40).empty());
  shape.first_query = 0;
  shape.rope = nullptr;
  CHECK(skip(12, 40).find("RoPE") != std::string::npos);
  CHECK(skip(40, 40).empty());
}

}  // namespace expected_attention_test
}  // namespace kvbench::test
