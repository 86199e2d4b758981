// Exact attention, logits, score sums and value norms against their definitions in long double.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <string>

#include "kernels/kernels.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace attention_test {

struct Case {
  const char* name;
  StreamSpec spec;
};

std::vector<Case> cases() {
  return {
      {"one token", {.tokens = 1, .d = 1, .dv = 1}},
      {"two tokens, d = 3", {.tokens = 2, .d = 3, .dv = 5, .heads_per_kv = 3}},
      {"597 tokens, d = 43", {.tokens = 597, .d = 43, .dv = 41, .heads_per_kv = 1}},
      {"130 tokens, d = 64, eight heads", {.tokens = 130, .d = 64, .dv = 64, .heads_per_kv = 8}},
      {"sliding window 17", {.tokens = 100, .d = 7, .dv = 9, .heads_per_kv = 3, .window = 17}},
      {"sliding window 1", {.tokens = 20, .d = 4, .dv = 4, .window = 1}},
      {"window as long as the stream", {.tokens = 33, .d = 4, .dv = 4, .window = 33}},
      {"soft-cap",
       {.tokens = 65, .d = 16, .dv = 8, .heads_per_kv = 2, .softcap = 2.0, .query_size = 3}},
      {"soft-cap far above the logits",
       {.tokens = 65, .d = 16, .dv = 8, .softcap = 1e30, .query_size = 3}},
      {"soft-cap of 1000 and logits on both sides of an eighth of it",
       {.tokens = 65, .d = 6, .dv = 8, .softcap = 1000.0, .kind = StreamKind::kHugeLogits}},
      {"soft-cap and window", {.tokens = 90, .d = 5, .dv = 6, .window = 31, .softcap = 30.0}},
      {"huge logits", {.tokens = 70, .d = 12, .dv = 12, .kind = StreamKind::kHugeLogits}},
      {"huge logits under a soft-cap",
       {.tokens = 40, .d = 6, .dv = 6, .softcap = 50.0, .kind = StreamKind::kHugeLogits}},
      {"equal keys", {.tokens = 50, .d = 8, .dv = 3, .kind = StreamKind::kEqualKeys}},
      {"zero keys", {.tokens = 50, .d = 8, .dv = 3, .kind = StreamKind::kZeroKeys}},
      {"zero values", {.tokens = 30, .d = 8, .dv = 3, .kind = StreamKind::kZeroValues}},
      {"more values than tokens", {.tokens = 9, .d = 4, .dv = 70}},
      {"queries of the last rows only", {.tokens = 50, .d = 8, .dv = 8, .first_query = 37}},
      {"sinks", {.tokens = 150, .d = 7, .dv = 9, .heads_per_kv = 3, .sinks = true}},
      {"sinks, soft-cap and window",
       {.tokens = 150,
        .d = 7,
        .dv = 9,
        .heads_per_kv = 2,
        .window = 40,
        .softcap = 3,
        .sinks = true}},
      {"ALiBi", {.tokens = 150, .d = 7, .dv = 9, .heads_per_kv = 3, .alibi = true}},
      {"ALiBi, soft-cap, window and sinks",
       {.tokens = 150,
        .d = 7,
        .dv = 9,
        .window = 40,
        .softcap = 3,
        .query_size = 3,
        .sinks = true,
        .alibi = true}},
      {"not causal", {.tokens = 150, .d = 7, .dv = 9, .heads_per_kv = 2, .causal = false}},
      {"not causal, queries of the last rows, sinks",
       {.tokens = 150, .d = 7, .dv = 9, .first_query = 131, .sinks = true, .causal = false}},
      {"chunks of 37", {.tokens = 150, .d = 7, .dv = 9, .heads_per_kv = 2, .chunk = 37}},
      {"chunks of one", {.tokens = 20, .d = 4, .dv = 4, .chunk = 1}},
      {"chunks of 64", {.tokens = 200, .d = 4, .dv = 4, .chunk = 64}},
      {"values in keys", {.tokens = 50, .d = 9, .dv = 6, .value_in_key = true}},
  };
}

std::vector<Index> all_query_rows(const Stream& stream) {
  std::vector<Index> rows;
  for (Index i = stream.shape.first_query; i < stream.shape.tokens; ++i) rows.push_back(i);
  return rows;
}

// The error that rounding of the logits alone must be allowed: eps |x| each.
double logit_slack(const NaiveRow& row) {
  Real largest = 1;
  for (const Real x : row.x) largest = std::max(largest, std::fabs(x));
  return 4e-15 * static_cast<double>(largest);
}

TEST_CASE("exact attention equals dense softmax attention") {
  for (const Case& c : cases()) {
    CAPTURE(std::string(c.name));
    const auto owned = make_stream(c.spec);
    const Stream& stream = owned->stream;
    const ExactRows exact = cpu_kernels().exact_attention(stream, all_query_rows(stream));
    REQUIRE(exact.rows == all_query_rows(stream));
    const std::size_t heads_per_kv = static_cast<std::size_t>(stream.shape.heads_per_kv);
    double worst_output = 0.0;
    double worst_sums = 0.0;
    for (std::size_t r = 0; r < exact.rows.size(); ++r) {
      for (std::size_t g = 0; g < heads_per_kv; ++g) {
        const NaiveRow naive = naive_row(stream, static_cast<int>(g), exact.rows[r]);
        const std::size_t at = r * heads_per_kv + g;
        const double slack = logit_slack(naive);
        Real largest = 1e-300L;
        for (const Real a : naive.a) largest = std::max(largest, std::fabs(a));
        for (std::size_t k = 0; k < naive.a.size(); ++k) {
          const double z = exact.outputs[at * naive.a.size() + k];
          worst_output = std::max(worst_output,
                                  static_cast<double>(std::fabs(z - naive.a[k]) / largest) / slack);
        }
        Real squares = 0;
        for (const Real p : naive.p) squares += p * p;
        // The split between shift and sum is free, their product is not.
        const double log_z = std::log(exact.normalizer[at]) + exact.max_logit[at];
        const double log_squares = std::log(exact.squared_sum[at]) + 2 * exact.max_logit[at];
        const double naive_log_z = static_cast<double>(std::log(naive.z) + naive.max);
        const double naive_log_squares =
            static_cast<double>(std::log(squares) + 2 * (std::log(naive.z) + naive.max));
        worst_sums = std::max({worst_sums, std::fabs(log_z - naive_log_z) / slack,
                               std::fabs(log_squares - naive_log_squares) / slack});
        CHECK(exact.normalizer[at] >= 1.0);
      }
    }
    CHECK(worst_output < 10.0);
    CHECK(worst_sums < 10.0);
  }
}

TEST_CASE("logits are scale <q, k> under the soft-cap, with exponentials beside them") {
  for (const Case& c : cases()) {
    CAPTURE(std::string(c.name));
    const auto owned = make_stream(c.spec);
    const Stream& stream = owned->stream;
    std::vector<Index> rows;  // every third, and the last
    for (const Index i : all_query_rows(stream)) {
      if (i % 3 == 0 || i == stream.shape.tokens - 1) rows.push_back(i);
    }
    LogitBlock block;
    cpu_kernels().logits(stream, rows, block);
    REQUIRE(block.rows == rows);
    REQUIRE(block.tokens >= rows.back() + 1);
    const std::size_t heads_per_kv = static_cast<std::size_t>(stream.shape.heads_per_kv);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (std::size_t g = 0; g < heads_per_kv; ++g) {
        const NaiveRow naive = naive_row(stream, static_cast<int>(g), rows[r]);
        const std::size_t at = r * heads_per_kv + g;
        const double slack = logit_slack(naive);
        double worst_x = 0.0;
        double worst_e = 0.0;
        for (std::size_t j = 0; j < naive.x.size(); ++j) {
          const std::size_t query_index =
              at * static_cast<std::size_t>(block.tokens) + static_cast<std::size_t>(naive.lo) + j;
          worst_x = std::max(
              worst_x,
              static_cast<double>(std::fabs(block.logits[query_index] - naive.x[j])) / slack);
          const double e = static_cast<double>(std::exp(naive.x[j] - naive.max));
          worst_e = std::max(worst_e, std::fabs(block.exps[query_index] - e) / slack);
        }
        CHECK(worst_x < 2.0);
        CHECK(worst_e < 4.0);
        CHECK(std::fabs(block.max_logit[at] - static_cast<double>(naive.max)) < 2.0 * slack);
      }
    }
  }
}

TEST_CASE("score sums are sums of softmax rows") {
  for (const Case& c : cases()) {
    if (c.spec.first_query > 0) continue;
    CAPTURE(std::string(c.name));
    const auto owned = make_stream(c.spec);
    const Stream& stream = owned->stream;
    const Index n = stream.shape.tokens;
    for (const auto& [first, last] : {std::pair<Index, Index>{0, n}, {n / 3, n - n / 4}}) {
      const auto sums = cpu_kernels().score_sums(stream, first, last);
      REQUIRE(sums.size() == static_cast<std::size_t>(stream.shape.heads_per_kv));
      for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
        std::vector<Real> naive(n, 0);
        double slack = 4e-15;
        for (Index i = first; i < last; ++i) {
          const NaiveRow row = naive_row(stream, g, i);
          slack = std::max(slack, logit_slack(row));
          for (std::size_t j = 0; j < row.p.size(); ++j) {
            naive[static_cast<std::size_t>(row.lo) + j] += row.p[j];
          }
        }
        const auto& mine = sums[g];
        REQUIRE(mine.size() == naive.size());
        double worst = 0.0;
        for (std::size_t j = 0; j < naive.size(); ++j) {
          worst = std::max(worst, static_cast<double>(std::fabs(mine[j] - naive[j])) /
                                      (slack * std::max(1.0, static_cast<double>(naive[j]))));
        }
        CHECK(worst < 10.0);
      }
    }
  }
}

TEST_CASE("value norms are the largest singular value and the Frobenius norm of the visible rows") {
  for (const Case& c : cases()) {
    CAPTURE(std::string(c.name));
    const auto owned = make_stream(c.spec);
    const Stream& stream = owned->stream;
    std::vector<Index> rows;
    const Index step = std::max<Index>(1, stream.shape.tokens / 12);
    for (Index i = 0; i < stream.shape.tokens; i += step) rows.push_back(i);
    if (rows.back() != stream.shape.tokens - 1) rows.push_back(stream.shape.tokens - 1);
    const std::vector<Index> mixed = {rows.back(), rows.front(), rows.back()};
    for (const std::vector<Index>& asked : {rows, mixed}) {
      std::vector<double> spectral;
      std::vector<double> frobenius;
      cpu_kernels().value_norms(stream, asked, spectral, frobenius);
      REQUIRE(spectral.size() == asked.size());
      REQUIRE(frobenius.size() == asked.size());
      for (std::size_t r = 0; r < asked.size(); ++r) {
        const Visible visible = naive_visible(stream.shape, asked[r]);
        const double op = naive_spectral_norm(stream.values, visible.first, visible.last + 1);
        const double fro = naive_frobenius_norm(stream.values, visible.first, visible.last + 1);
        CHECK(std::fabs(spectral[r] - op) <= 1e-10 * op);
        CHECK(std::fabs(frobenius[r] - fro) <= 1e-13 * fro);
      }
    }
  }
}

// The norms of all rows, every `step`-th of them against the naive one.
void check_spectral_norms(const Stream& stream, Index step) {
  std::vector<Index> rows(stream.shape.tokens);
  std::iota(rows.begin(), rows.end(), Index{0});
  std::vector<double> spectral;
  std::vector<double> frobenius;
  cpu_kernels().value_norms(stream, rows, spectral, frobenius);
  for (Index i = 0; i < stream.shape.tokens; i += step) {
    const double op = naive_spectral_norm(stream.values, stream.shape.first_visible(i), i + 1);
    CHECK(std::fabs(spectral[i] - op) <= 1e-10 * op);
  }
}

TEST_CASE("spectral norms hold at every row of a long stream, also where the top direction turns") {
  constexpr Index n = 600;
  constexpr Index dv = 30;
  for (const Index window : {Index{0}, Index{200}, Index{40}}) {
    CAPTURE(window);
    const auto owned = make_stream({.tokens = n, .d = 4, .dv = dv, .window = window});
    // Token 300 on, one direction grows until it overtakes the largest of the others.
    for (Index j = 300; j < n; ++j) {
      owned->values[j * dv + 7] += 0.02 * static_cast<double>(j - 300);
    }
    check_spectral_norms(owned->stream, 11);
  }
}

TEST_CASE("spectral norms hold at every row where the singular values crowd or coincide") {
  constexpr Index n = 300;
  for (const Index dv : {Index{2}, Index{3}, Index{40}}) {
    for (const Index window : {Index{0}, Index{50}}) {
      // The last sizes grow tenfold by token.
      for (const auto& [first, growth] :
           {std::pair{1.0, 1.0}, {1e-120, 1.0}, {1e120, 1.0}, {1e-150, 10.0}}) {
        for (const bool orthogonal : {false, true}) {
          CAPTURE(dv);
          CAPTURE(window);
          CAPTURE(first);
          CAPTURE(orthogonal);
          const auto owned = make_stream({.tokens = n, .d = 4, .dv = dv, .window = window});
          for (Index j = 0; j < n; ++j) {
            for (Index k = 0; k < dv; ++k) {
              double& v = owned->values[j * dv + k];
              if (orthogonal) v = j % dv == k ? 1.0 : 0.0;
              v *= first * std::pow(growth, static_cast<double>(j));
            }
          }
          check_spectral_norms(owned->stream, 7);
        }
      }
    }
  }
}

TEST_CASE("spectral norms hold where the two largest singular values are close or equal") {
  // Orthogonal rows of lengths 3, 3 (1 - 1e-9), 1 and of lengths 2, 2.
  const double near = 3.0 * (1.0 - 1e-9);
  const auto owned = stream_of({{1, 0}, {0, 1}, {1, 1}}, {{3, 0, 0}, {0, near, 0}, {0, 0, 1}},
                               {{{1, 0}, {0, 1}, {1, 1}}});
  std::vector<double> spectral;
  std::vector<double> frobenius;
  cpu_kernels().value_norms(owned->stream, {0, 1, 2}, spectral, frobenius);
  for (const double op : spectral) CHECK(std::fabs(op - 3.0) < 3e-10);
  CHECK(frobenius[2] == doctest::Approx(std::sqrt(9.0 + near * near + 1.0)).epsilon(1e-14));
  const auto equal = stream_of({{1, 0}, {0, 1}}, {{2, 0}, {0, 2}}, {{{1, 0}, {0, 1}}});
  cpu_kernels().value_norms(equal->stream, {1}, spectral, frobenius);
  CHECK(std::fabs(spectral[0] - 2.0) < 2e-10);
}

}  // namespace attention_test
}  // namespace kvbench::test
