// capkv: weights by agreement with later queries, ridge leverage of values, and which tokens stay.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/naive_expected.hpp"
#include "support/naive_ranking.hpp"
#include "support/rope_stream.hpp"

namespace kvbench::test {
namespace capkv_test {

struct Setting {
  Index budget = 12;
  Index sinks = 4;
  Index future = 512;
  double tau = 5;
};

Given given_of(const Setting& s) {
  return {{"budget", count_of(s.budget)},
          {"sinks", count_of(s.sinks)},
          {"future", count_of(s.future)},
          {"tau", number(s.tau)}};
}

KeptSets ours(const Stream& stream, Index prompt, const Setting& setting) {
  return kept_by("capkv", stream, prompt, given_of(setting));
}

using Vector = std::vector<Real>;

Real dot(const Vector& a, const Vector& b) {
  Real sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

Vector row_of(ConstMatrix rows, Index token) {
  return {rows.row(token), rows.row(token) + rows.cols};
}

// A x = b by elimination with pivots.
Vector solved(std::vector<Vector> a, Vector b) {
  const std::size_t n = b.size();
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r) {
      if (std::fabs(a[r][c]) > std::fabs(a[pivot][c])) pivot = r;
    }
    std::swap(a[c], a[pivot]);
    std::swap(b[c], b[pivot]);
    for (std::size_t r = c + 1; r < n; ++r) {
      const Real factor = a[r][c] / a[c][c];
      for (std::size_t k = c; k < n; ++k) a[r][k] -= factor * a[c][k];
      b[r] -= factor * b[c];
    }
  }
  for (std::size_t c = n; c-- > 0;) {
    for (std::size_t k = c + 1; k < n; ++k) b[c] -= a[c][k] * b[k];
    b[c] /= a[c][c];
  }
  return b;
}

struct NaiveCapacity {
  Vector weights;   // w_j
  Vector leverage;  // v_j^T A^-1 v_j
  Real inverse_trace = 0;
};

NaiveCapacity naive_capacity(const Stream& stream, int g, Index first, Index prompt, Index future,
                             Real tau) {
  const Vector anchor = naive_future_moments(stream, g, first, prompt, future).mean;
  NaiveCapacity out;
  Real most = -2 * tau;
  for (Index j = first; j < prompt; ++j) {
    const Vector key = row_of(stream.keys, j);
    const Real length = std::sqrt(dot(key, key)) * std::sqrt(dot(anchor, anchor));
    const Real cosine = length > 0 ? dot(anchor, key) / length : 0;
    out.weights.push_back(tau * cosine);
    most = std::max(most, tau * cosine);
  }
  for (Real& w : out.weights) w = std::exp(w - most);
  const std::size_t dv = static_cast<std::size_t>(stream.shape.dv);
  std::vector<Vector> a(dv, Vector(dv, 0));
  for (std::size_t r = 0; r < dv; ++r) {
    a[r][r] = 1;
    for (std::size_t c = 0; c < dv; ++c) {
      for (Index j = first; j < prompt; ++j) {
        const Vector v = row_of(stream.values, j);
        a[r][c] += (out.weights[j - first] + 1e-6L) * v[r] * v[c];
      }
    }
  }
  for (Index j = first; j < prompt; ++j) {
    const Vector v = row_of(stream.values, j);
    out.leverage.push_back(dot(v, solved(a, v)));
  }
  for (std::size_t r = 0; r < dv; ++r) {
    Vector unit(dv, 0);
    unit[r] = 1;
    out.inverse_trace += solved(a, unit)[r];
  }
  return out;
}

KeptSets naive(const Stream& stream, Index prompt, const Setting& s) {
  return naive_once(stream, prompt, {s.budget, s.sinks, 0}, [&](const std::vector<Index>& tokens) {
    const Index first = std::max(tokens.front(), s.sinks);
    const auto sinks = static_cast<std::size_t>(first - tokens.front());
    Vector scores(tokens.size(), 0);
    for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
      const NaiveCapacity capacity = naive_capacity(stream, g, first, prompt, s.future, s.tau);
      for (std::size_t j = 0; j < capacity.weights.size(); ++j) {
        scores[sinks + j] += capacity.weights[j] * capacity.leverage[j];
      }
    }
    return scores;
  });
}

RopeStream rope_stream(Index rotated = 6, bool interleaved = false, Index window = 0) {
  return make_rope_stream({.tokens = 60, .d = 7, .dv = 4, .heads_per_kv = 3, .window = window},
                          rotated, interleaved);
}

TEST_CASE("capkv, worked: values of one number") {
  // All queries before rotation (1, 0), the future is position 4, a whole turn: the anchor is (1,
  // 0). Cosines 1 0 -1 1, weights 1, e^-1, e^-2, 1 with tau 1. A = 1 + sum w v^2 is common: scores
  // go as w v^2: 1, 9 e^-1 = 3.3, 36 e^-2 = 4.9, 4.
  auto owned = stream_of({{2, 0}, {0, 3}, {-5, 0}, {1, 0}, {1, 1}}, {{1}, {3}, {-6}, {2}, {1}},
                         {{{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, 0}}});
  auto rope = std::make_shared<Rope>();
  rope->inv_freq = {std::acos(-1.0) / 2};
  owned->stream.shape.rope = rope;
  const auto kept = [&](Index budget, double tau, Index sinks = 0) {
    return ours(owned->stream, 4, {budget, sinks, 1, tau}).front();
  };
  CHECK(kept(1, 1) == std::vector<Index>{2, 4});
  CHECK(kept(2, 1) == std::vector<Index>{2, 3, 4});
  CHECK(kept(3, 1) == std::vector<Index>{1, 2, 3, 4});
  CHECK(kept(2, 1, 1) == std::vector<Index>{0, 2, 4});
  // tau 3: 1, 0.45, 0.09, 4.
  CHECK(kept(2, 3) == std::vector<Index>{0, 3, 4});
  // tau 0: the largest values.
  CHECK(kept(2, 0) == std::vector<Index>{1, 2, 4});
}

TEST_CASE("capkv keeps what its definition keeps, on every stream and setting") {
  Index ran = 0;
  const auto check = [&](const Stream& stream) {
    for (const Index prompt : {0, 1, 3, 20, 59}) {
      for (const Index budget : {4, 10, 30}) {
        for (const Index future : {1, 40}) {
          for (const double tau : {0.0, 1.0, 5.0, 40.0}) {
            const Setting setting{budget, 4, future, tau};
            CAPTURE(prompt);
            CAPTURE(budget);
            CAPTURE(future);
            CAPTURE(tau);
            CHECK(ours(stream, prompt, setting) == naive(stream, prompt, setting));
            ++ran;
          }
        }
      }
    }
  };
  for (const bool interleaved : {false, true}) {
    for (const Index rotated : {2, 6}) check(rope_stream(rotated, interleaved).turned->stream);
  }
  check(rope_stream(6, false, 25).turned->stream);
  CHECK(ran > 400);
}

TEST_CASE("capkv is skipped without RoPE data or queries, unless the prompt fits") {
  StreamShape shape = rope_stream().turned->stream.shape;
  const auto skip = [&](Index budget) {
    return skip_of("capkv", shape, 40, given_of({.budget = budget}));
  };
  CHECK(skip(12).empty());
  CHECK(!skip(3).empty());
  shape.first_query = 5;
  CHECK(!skip(12).empty());
  CHECK(skip(40).empty());
  shape.first_query = 0;
  shape.rope = nullptr;
  CHECK(!skip(12).empty());
}

}  // namespace capkv_test
}  // namespace kvbench::test
