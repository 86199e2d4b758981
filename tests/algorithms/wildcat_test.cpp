// wildcat: a worked bin, the Nystrom formula solved densely in long double, what it promises, and
// where it cannot run.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/counter_rng.hpp"
#include "support/given.hpp"
#include "support/library_answer.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace wildcat_test {

struct Rule {
  Index budget = 0;
  Index sinks = 0;
  Index window = 0;
  Index rank = 1;
  bool lambert = false;
  bool clamp = true;
  bool centre = true;
};

Given given_of(const Rule& rule) {
  return {{"budget", count_of(rule.budget)},
          {"sinks", count_of(rule.sinks)},
          {"window", count_of(rule.window)},
          {"rank", count_of(rule.rank)},
          {"temperature", word_of(rule.lambert ? "lambert" : "fixed")},
          {"clamp", Value{rule.clamp}},
          {"centre", Value{rule.centre}}};
}

using Table = std::vector<std::vector<Real>>;

// A^-1 B, by elimination with pivots.
Table solved(Table a, Table b) {
  const std::size_t n = a.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i; r < n; ++r) {
      if (std::fabs(a[r][i]) > std::fabs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const Real factor = a[r][i] / a[i][i];
      for (std::size_t c = 0; c < n; ++c) a[r][c] -= factor * a[i][c];
      for (std::size_t c = 0; c < b[r].size(); ++c) b[r][c] -= factor * b[i][c];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (Real& x : b[i]) x /= a[i][i];
  }
  return b;
}

struct NaiveRowOf {
  Index token;
  Real w_den;
  std::vector<Real> value;
};

// w e^w = x by bisection.
Real naive_lambert(Real x) {
  Real low = 0;
  Real high = 1 + std::log(1 + x);
  for (int step = 0; step < 200; ++step) {
    const Real middle = (low + high) / 2;
    (middle * std::exp(middle) < x ? low : high) = middle;
  }
  return low;
}

// Rows of one bin of tokens [first, first + size), ascending by token.
std::vector<NaiveRowOf> naive_bin(const Stream& stream, Index prompt, Index first, Index size,
                                  Index number, const Rule& rule, std::uint32_t seed) {
  const auto d = static_cast<std::size_t>(stream.shape.d);
  std::vector<Real> centre(d, 0);
  for (Index j = 0; rule.centre && j < prompt; ++j) {
    for (std::size_t k = 0; k < d; ++k)
      centre[k] += stream.keys.row(j)[k] / static_cast<Real>(prompt);
  }
  Table keys;
  Real largest = 0;
  for (Index j = first; j < first + size; ++j) {
    Real square = 0;
    std::vector<Real>& key = keys.emplace_back();
    for (std::size_t k = 0; k < d; ++k) {
      key.push_back(stream.keys.row(j)[k] - centre[k]);
      square += key[k] * key[k];
    }
    largest = std::max(largest, square);
  }
  Real tau2 = 3.94582L;
  const Real s = stream.shape.scale;
  if (rule.lambert && largest > 0) {
    const Real b = std::log(static_cast<Real>(size)) / (s * largest) + 2;
    tau2 = b / (2 * naive_lambert(b / 6.383202050647408L));
  }
  std::vector<Real> square;
  for (auto& key : keys) {
    Real sum = 0;
    for (Real& x : key) {
      x *= std::sqrt(s / tau2);
      sum += x * x;
    }
    square.push_back(sum);
  }
  const auto kernel = [&](std::size_t a, std::size_t b) {
    Real sum = 0;
    for (std::size_t k = 0; k < d; ++k)
      sum += (keys[a][k] - keys[b][k]) * (keys[a][k] - keys[b][k]);
    return std::exp(-sum / 2);
  };
  const auto solve_for_all = [&](const std::vector<std::size_t>& pivots) {
    Table a;
    Table b;
    for (const std::size_t p : pivots) {
      std::vector<Real>& row = a.emplace_back();
      for (const std::size_t q : pivots) row.push_back(kernel(p, q));
      std::vector<Real>& to = b.emplace_back();
      for (std::size_t j = 0; j < keys.size(); ++j) to.push_back(kernel(p, j));
    }
    return solved(a, b);
  };
  const CounterRng gumbel(seed, stream.id.hash(), "wildcat/pivot");
  std::vector<std::size_t> pivots;
  for (Index step = 0; step < rule.rank; ++step) {
    const Table w = pivots.empty() ? Table() : solve_for_all(pivots);
    Real best = -std::numeric_limits<Real>::infinity();
    std::size_t winner = keys.size();
    for (std::size_t j = 0; j < keys.size(); ++j) {
      Real residual = 1;
      for (std::size_t p = 0; p < pivots.size(); ++p) residual -= w[p][j] * kernel(pivots[p], j);
      if (residual < 1e-12L) continue;
      const Real u =
          gumbel.uniform53(static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(j),
                           static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(number));
      const Real score = std::log(residual) + square[j] - std::log(-std::log(u));
      if (score > best) {
        best = score;
        winner = j;
      }
    }
    if (winner == keys.size()) break;
    pivots.push_back(winner);
  }
  std::sort(pivots.begin(), pivots.end());
  const Table w = solve_for_all(pivots);
  std::vector<NaiveRowOf> rows;
  for (std::size_t p = 0; p < pivots.size(); ++p) {
    NaiveRowOf& row = rows.emplace_back();
    row.token = first + static_cast<Index>(pivots[p]);
    row.w_den = 0;
    row.value.assign(stream.shape.dv, 0);
    for (std::size_t j = 0; j < keys.size(); ++j) {
      const Real weight = w[p][j] * std::exp((square[j] - square[pivots[p]]) / 2);
      row.w_den += weight;
      for (std::size_t k = 0; k < row.value.size(); ++k) {
        row.value[k] += weight * stream.values.row(first + static_cast<Index>(j))[k];
      }
    }
  }
  return rows;
}

Sketch at_first_row(const Stream& stream, Index prompt, const Rule& rule, std::uint32_t seed = 0) {
  return sketches_of("wildcat", stream, prompt, given_of(rule), seed).front();
}

TEST_CASE("wildcat, worked: two tokens, one pivot") {
  // Keys 0 and tau: the kernel between them is e^-1/2. Pivot 0: W = (1, e^-1/2 e^1/2); pivot 1:
  // W = (e^-1/2 e^-1/2, 1).
  const double tau = std::sqrt(3.94582);
  const auto owned = stream_of({{0}, {tau}, {0}}, {{3}, {5}, {0}}, {{{0}, {0}, {0}}});
  bool seen[2] = {false, false};
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Sketch sketch = at_first_row(owned->stream, 2, {.budget = 1, .centre = false}, seed);
    REQUIRE(sketch.size() == 2);
    const SketchRow& row = sketch[0];
    const double other = row.token == 0 ? 1.0 : std::exp(-1.0);
    seen[row.token] = true;
    CHECK(row.w_num == 1.0);
    CHECK(row.w_den == doctest::Approx(1 + other).epsilon(1e-14));
    const double value = row.token == 0 ? 3 + other * 5 : 5 + other * 3;
    CHECK(sketch.own_values[row.own_value][0] == doctest::Approx(value).epsilon(1e-14));
    CHECK(sketch[1].token == 2);
  }
  CHECK(seen[0]);
  CHECK(seen[1]);
}

TEST_CASE("rows are those of the Nystrom formula solved densely, whatever the rule") {
  Index negative = 0;
  for (const StreamSpec& spec :
       {StreamSpec{.tokens = 60, .d = 4, .dv = 3, .heads_per_kv = 2},
        StreamSpec{.tokens = 60, .d = 16, .dv = 2},
        StreamSpec{.tokens = 60, .d = 3, .dv = 2, .kind = StreamKind::kClustered},
        StreamSpec{.tokens = 60, .d = 2, .dv = 2, .kind = StreamKind::kTies}}) {
    const auto owned = make_stream(spec);
    for (const bool lambert : {false, true}) {
      for (const bool centre : {true, false}) {
        for (const Index rank : {1, 3}) {
          const Rule rule{.budget = 20,
                          .sinks = 3,
                          .window = 4,
                          .rank = rank,
                          .lambert = lambert,
                          .centre = centre};
          const Index prompt = 55;
          const Index bins = (20 - 7) / rank;
          const Index size = (prompt - 7) / bins;
          const Sketch sketch = at_first_row(owned->stream, prompt, rule, 3);
          Index position = 0;
          for (Index token = 0; token < 3; ++token) CHECK(sketch[position++].token == token);
          for (Index b = 0; b < bins; ++b) {
            const auto naive = naive_bin(owned->stream, prompt, 3 + b * size, size, b, rule, 3);
            for (const NaiveRowOf& row : naive) {
              REQUIRE(position < sketch.size());
              const SketchRow& ours = sketch[position++];
              CHECK(ours.token == row.token);
              CHECK(ours.w_num == 1.0);
              CHECK(ours.weight_numbers == 1);
              // Double next to long double: rounding, below 1e-13 here.
              CHECK(ours.w_den == doctest::Approx(static_cast<double>(row.w_den)).epsilon(1e-11));
              negative += ours.w_den < 0 ? 1 : 0;
              REQUIRE(ours.own_value >= 0);
              for (std::size_t k = 0; k < row.value.size(); ++k) {
                CHECK(sketch.own_values[ours.own_value][k] ==
                      doctest::Approx(static_cast<double>(row.value[k])).epsilon(1e-11));
              }
            }
          }
          // The tokens left over are recent, and so is the decode token.
          for (Index token = 3 + bins * size; token <= prompt; ++token) {
            REQUIRE(position < sketch.size());
            CHECK(sketch[position].w_den == 1.0);
            CHECK(sketch[position++].token == token);
          }
          CHECK(position == sketch.size());
          CHECK(sketch.kept_counts().bookkeeping ==
                (sketch.size() - 3 - (prompt + 1 - 3 - bins * size)) + 2 * spec.dv);
        }
      }
    }
  }
  CHECK(negative > 0);  // the case that the rule for answers is made for
}

TEST_CASE("with clamp every answer is within the values so far, without some are not") {
  const auto owned =
      make_stream({.tokens = 80, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 6});
  Index answered[2] = {0, 0};
  Index outside[2] = {0, 0};
  Index empty[2] = {0, 0};
  for (const bool clamp : {false, true}) {
    for (std::uint32_t seed = 0; seed < 4; ++seed) {
      const Rule rule{.budget = 10, .sinks = 1, .window = 1, .rank = 4, .clamp = clamp};
      const auto all = sketches_of("wildcat", owned->stream, 60, given_of(rule), seed);
      for (std::size_t r = 0; r < all.size(); ++r) {
        const Index row = 60 + static_cast<Index>(r);
        for (int g = 0; g < 2; ++g) {
          const Answer answer = library_answer(owned->stream, g, row, all[r]);
          for (Index k = 0; k < 3; ++k) {
            double low = HUGE_VAL;
            double high = -HUGE_VAL;
            for (Index j = 0; j <= row; ++j) {
              low = std::min(low, owned->stream.values(j, k));
              high = std::max(high, owned->stream.values(j, k));
            }
            const double z = answer.answer[k];
            if (answer.empty_denominator) {
              ++empty[clamp ? 1 : 0];
              if (!clamp) continue;  // 0, which may be outside
            }
            ++answered[clamp ? 1 : 0];
            outside[clamp ? 1 : 0] += z < low || z > high ? 1 : 0;
          }
        }
      }
    }
  }
  CHECK(outside[0] > 0);
  CHECK(outside[1] == 0);
  // The clamp comes after the rule that answers 0, whose answers are clamped too.
  CHECK(empty[0] == empty[1]);
  CHECK(answered[0] + empty[0] == answered[1]);
  CHECK(answered[1] > 4 * 20 * 2 * 3 / 2);
}

TEST_CASE("answers that were clamped are counted; methods without the rule have no count") {
  const auto owned =
      make_stream({.tokens = 80, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 6});
  const auto counted = [&](const std::string& id, const Given& given, std::uint32_t seed = 0) {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    return replay_one(owned->stream, 60, algorithm, params_for(algorithm, given), seed)
        .metrics["counters.clamped_answers"];
  };
  Rule rule{.budget = 10, .sinks = 1, .window = 1, .rank = 4};
  double total = 0.0;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    Index clamped = 0;
    const auto all = sketches_of("wildcat", owned->stream, 60, given_of(rule), seed);
    for (std::size_t r = 0; r < all.size(); ++r) {
      for (int g = 0; g < 2; ++g) {
        clamped +=
            naive_answer(owned->stream, g, 60 + static_cast<Index>(r), all[r]).clamped ? 1 : 0;
      }
    }
    CHECK(counted("wildcat", given_of(rule), seed) == static_cast<double>(clamped));
    total += static_cast<double>(clamped);
  }
  CHECK(total > 0);
  rule.clamp = false;
  CHECK(!counted("wildcat", given_of(rule)));
  CHECK(!counted("window", {{"budget", count_of(9)}}));
}

TEST_CASE("a budget without a bin and sliding layers are skipped") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  const auto skip = [&](const Rule& rule) { return skip_of("wildcat", shape, 40, given_of(rule)); };
  CHECK(skip({.budget = 20, .sinks = 4, .window = 4, .rank = 12}).empty());
  CHECK(!skip({.budget = 19, .sinks = 4, .window = 4, .rank = 12}).empty());
  CHECK(!skip({.budget = 7, .sinks = 4, .window = 4}).empty());
  CHECK(skip({.budget = 40, .sinks = 40, .window = 4}).empty());
  // Whoever obeys the reason is not refused again.
  CHECK(skip({.budget = 15, .sinks = 8, .window = 4, .rank = 12}) ==
        "budget of 15 tokens is smaller than sinks + window + rank (8 + 4 + 12), which one bin "
        "takes; raise budget to 24, or lower sinks + window to 3, or rank to 3");
  CHECK(skip({.budget = 24, .sinks = 8, .window = 4, .rank = 12}).empty());
  CHECK(skip({.budget = 15, .sinks = 3, .window = 0, .rank = 12}).empty());
  CHECK(skip({.budget = 15, .sinks = 8, .window = 4, .rank = 3}).empty());
  CHECK(skip({.budget = 7, .sinks = 20, .window = 30, .rank = 12}) ==
        "budget of 7 tokens is smaller than sinks + window + rank (20 + 30 + 12), which one bin "
        "takes; raise budget to 40");
  shape.window = 20;
  CHECK(!skip({.budget = 20, .sinks = 4, .window = 4, .rank = 12}).empty());
  const AlgorithmDescription& algorithm = algorithm_named("wildcat");
  CHECK(algorithm.not_rows(params_for(algorithm, given_of({.budget = 8}))));
}

}  // namespace wildcat_test
}  // namespace kvbench::test
