// Score sums with noise, temperature, decay and gain, against the definition row by row.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "kernels/kernels.hpp"
#include "numerics/counter_rng.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace score_rule_test {

using Sums = std::vector<std::vector<Real>>;

// f = decay f + gain softmax((x + noise) / temperature), f of all tokens once per row.
Sums dense(const Stream& stream, Index first, Index last, const ScoreRule& rule) {
  Sums f(static_cast<std::size_t>(stream.shape.heads_per_kv),
         std::vector<Real>(static_cast<std::size_t>(stream.shape.tokens), 0));
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    std::vector<Real>& head = f[g];
    for (Index i = first; i < last; ++i) {
      const Index lo = stream.shape.first_visible(i);
      std::vector<Real> y;
      Real sum = 0;
      Real max = -1e30L;
      const Index end = stream.shape.visible_end(i);
      const auto temperature = static_cast<Real>(rule.temperature);
      Real sink = 0;
      if (!stream.sinks.empty()) {
        sink = stream.sinks[g] / temperature;
        max = sink;
      }
      for (Index j = lo; j < end; ++j) {
        y.push_back((naive_logit(stream, g, i, j) + rule.noise.draw(g, i, j)) / temperature);
        max = std::max(max, y.back());
      }
      if (!stream.sinks.empty()) sum = std::exp(sink - max);
      for (Real& value : y) sum += value = std::exp(value - max);
      for (Real& score : head) score *= rule.decay;
      for (Index j = lo; j < end; ++j) {
        head[j] += rule.gain * y[j - lo] / sum;
      }
    }
  }
  return f;
}

double largest_difference(const std::vector<std::vector<double>>& a, const Sums& b, Index from) {
  Real worst = 0;
  for (std::size_t g = 0; g < a.size(); ++g) {
    for (std::size_t j = static_cast<std::size_t>(from); j < a[g].size(); ++j) {
      worst = std::max(worst, std::fabs(a[g][j] - b[g][j]) / (1 + std::fabs(b[g][j])));
    }
  }
  return static_cast<double>(worst);
}

LogitNoise noise_of(LogitNoise::Kind kind, bool per_row) {
  return {kind, per_row, CounterRng(3, 17, "test/noise").key()};
}

TEST_CASE("scores with noise, temperature, decay and gain are what the rule says") {
  using Kind = LogitNoise::Kind;
  struct Rule {
    Kind kind;
    bool per_row;
    double temperature;
    double decay;
    double gain;
  };
  const std::vector<Rule> rules = {
      {Kind::kGumbel, false, 1.0, 1.0, 1.0},  {Kind::kGumbel, true, 1.0, 1.0, 1.0},
      {Kind::kGaussian, true, 2.0, 0.9, 1.0}, {Kind::kConstant, false, 0.5, 1.0, 0.3},
      {Kind::kNone, false, 3.0, 0.5, 2.0},    {Kind::kNone, false, 1.0, 0.0, 1.0},
      {Kind::kGumbel, false, 0.11, 0.7, 1.0}, {Kind::kGumbel, false, 0.05, 1.0, 1.0}};
  const std::vector<StreamSpec> specs = {
      {.tokens = 300, .d = 5, .dv = 1, .heads_per_kv = 2, .query_size = 3},
      {.tokens = 600, .d = 16, .dv = 1, .window = 70},
      {.tokens = 90, .d = 4, .dv = 1, .heads_per_kv = 3, .softcap = 1.5, .query_size = 4},
      {.tokens = 170, .d = 4, .dv = 1, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 170, .d = 4, .dv = 1, .heads_per_kv = 2, .alibi = true},
      {.tokens = 170, .d = 4, .dv = 1, .window = 50, .sinks = true, .alibi = true},
      {.tokens = 170, .d = 4, .dv = 1, .heads_per_kv = 2, .causal = false},
      {.tokens = 170, .d = 4, .dv = 1, .heads_per_kv = 2, .chunk = 37}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Rule& one : rules) {
      ScoreRule rule;
      rule.noise = noise_of(one.kind, one.per_row);
      rule.temperature = one.temperature;
      rule.decay = one.decay;
      rule.gain = one.gain;
      for (const auto& [first, last] :
           std::vector<std::pair<Index, Index>>{{0, spec.tokens}, {0, 1}, {0, 65}, {50, 83}}) {
        CAPTURE(spec.tokens);
        CAPTURE(one.temperature);
        CAPTURE(one.decay);
        CAPTURE(last);
        // Tokens that no later row sees are of no use to anybody, and their decay may stop.
        const Index from = owned->stream.shape.first_visible(last);
        CHECK(largest_difference(cpu_kernels().score_sums(owned->stream, first, last, rule),
                                 dense(owned->stream, first, last, rule), from) < 1e-13);
      }
    }
  }
}

TEST_CASE("rules asked together give the bits that each gives alone") {
  using Kind = LogitNoise::Kind;
  std::vector<ScoreRule> rules = {{},
                                  {.noise = noise_of(Kind::kGumbel, true)},
                                  {.noise = {}, .temperature = 2.0},
                                  {.noise = noise_of(Kind::kConstant, false), .gain = 0.3},
                                  {.noise = noise_of(Kind::kGaussian, false), .temperature = 2.0},
                                  {.noise = noise_of(Kind::kGumbel, false), .temperature = 0.01},
                                  {.noise = {}, .decay = 0.9}};
  for (std::uint32_t seed = 0; seed < 70; ++seed) {
    rules.push_back({.noise = {Kind::kGumbel, false, CounterRng(seed, 17, "test/noise").key()}});
  }
  for (const StreamSpec& spec : {StreamSpec{.tokens = 330, .d = 5, .dv = 1, .heads_per_kv = 2},
                                 StreamSpec{.tokens = 400, .d = 7, .dv = 1, .window = 61}}) {
    const auto owned = make_stream(spec);
    const auto together = cpu_kernels().score_sums_by(owned->stream, 3, spec.tokens - 5, rules);
    REQUIRE(together.size() == rules.size());
    for (std::size_t k = 0; k < rules.size(); ++k) {
      CAPTURE(k);
      CHECK(together[k] == cpu_kernels().score_sums(owned->stream, 3, spec.tokens - 5, rules[k]));
    }
  }
}

TEST_CASE("keys beyond the caches give the bits of the same keys within them") {
  // Zeros behind keys and queries leave every logit what it is: 700 tokens of 6000 numbers are more
  // than the last cache is taken to hold, and so are more rows gathered at once.
  constexpr Index kTokens = 700;
  constexpr Index kLong = 6000;
  const auto owned = make_stream({.tokens = kTokens, .d = 6, .dv = 1, .heads_per_kv = 2});
  const auto padded = [](ConstMatrix from) {
    std::vector<double> out(from.rows * kLong, 0.0);
    for (Index i = 0; i < from.rows; ++i) {
      std::copy_n(from.row(i), from.cols, out.begin() + i * kLong);
    }
    return out;
  };
  const auto keys = padded(owned->stream.keys);
  const auto queries = padded(owned->stream.queries[0]);
  const auto others = padded(owned->stream.queries[1]);
  Stream beyond = owned->stream;
  beyond.shape.d = kLong;
  beyond.keys = {keys.data(), kTokens, kLong};
  beyond.queries = {{queries.data(), kTokens, kLong}, {others.data(), kTokens, kLong}};
  ScoreRule rule;
  rule.temperature = 1.5;
  rule.decay = 0.9;
  for (const auto& [first, last] :
       std::vector<std::pair<Index, Index>>{{0, kTokens}, {31, 650}, {640, 675}}) {
    CAPTURE(first);
    CHECK(cpu_kernels().score_sums(beyond, first, last, rule) ==
          cpu_kernels().score_sums(owned->stream, first, last, rule));
  }
}

TEST_CASE(
    "where logits overflow, the sums of that query head are NaN and those of others are not") {
  const auto owned = make_stream({.tokens = 120, .d = 4, .dv = 1, .heads_per_kv = 2});
  for (Index k = 0; k < 4; ++k) owned->queries[1][77 * 4 + k] = 1e308;
  owned->keys[60 * 4] = 1e10;
  const auto sums = cpu_kernels().score_sums(owned->stream, 0, 120);
  for (const double f : sums[0]) CHECK(std::isfinite(f));
  for (const double f : sums[1]) CHECK(std::isnan(f));
}

TEST_CASE("draws per token repeat in every row, draws per row do not; heads draw their own") {
  for (const LogitNoise::Kind kind : {LogitNoise::Kind::kGumbel, LogitNoise::Kind::kGaussian}) {
    const LogitNoise token = noise_of(kind, false);
    const LogitNoise row = noise_of(kind, true);
    CHECK(token.draw(0, 4, 2) == token.draw(0, 9, 2));
    CHECK(token.draw(0, 4, 2) != token.draw(1, 4, 2));
    CHECK(token.draw(0, 4, 2) != token.draw(0, 4, 3));
    CHECK(row.draw(0, 4, 2) != row.draw(0, 9, 2));
    CHECK(row.draw(0, 4, 2) != row.draw(1, 4, 2));
    CHECK(row.draw(0, 4, 2) != row.draw(0, 4, 3));
    CHECK(row.draw(0, 4, 2) == row.draw(0, 4, 2));
  }
}

TEST_CASE("the normal quantile inverts the normal distribution to its digits") {
  const auto upper_tail = [](double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); };
  for (const double u :
       {0.5, 0.4, 0.1, 0.0751, 0.075, 0.0749, 0.01, 1e-5, 1.3e-11, 1e-13, 1e-16, 0x1p-53, 1e-100}) {
    CAPTURE(u);
    const double z = normal_quantile(u);
    // d ln(tail) / dz is about |z| + 1/|z|: a relative error of z turns into z^2 times it.
    CHECK(std::fabs(upper_tail(-z) / u - 1.0) < 1e-14 * (1.0 + z * z));
    if (u > 1e-12) CHECK(normal_quantile(1.0 - u) == doctest::Approx(-z).epsilon(1e-4));
  }
  CHECK(normal_quantile(0.5) == 0.0);
  CHECK(normal_quantile(0.975) == doctest::Approx(1.959963984540054).epsilon(1e-14));
  CHECK(normal_quantile(0.75) == doctest::Approx(0.6744897501960817).epsilon(1e-14));
}

}  // namespace score_rule_test
}  // namespace kvbench::test
