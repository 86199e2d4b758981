// The self-balancing walk: worked steps, every sign against the coin-by-coin rule, exponents that
// no double can hold.
#include "kernels/balance_walk.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "numerics/counter_rng.hpp"
#include "support/naive_walk.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace balance_walk_test {

std::vector<double> coins(Index count, std::uint32_t seed) {
  const CounterRng random(seed, 0, "test/walk");
  std::vector<double> out;
  for (Index j = 0; j < count; ++j) out.push_back(random.uniform(static_cast<std::uint32_t>(j)));
  return out;
}

Real dot(ConstMatrix rows, Index a, Index b) {
  Real sum = 0;
  for (Index k = 0; k < rows.cols; ++k) {
    sum += static_cast<Real>(rows(a, k)) * static_cast<Real>(rows(b, k));
  }
  return sum;
}

NaiveWalk expected(const WalkRule& rule, const kvbench::WalkKernel& kernel, ConstMatrix keys,
                   ConstMatrix values, const std::vector<double>& uniforms) {
  const auto entry = [&](Index i, Index j) {
    const Real exponent = std::min<Real>(kernel.beta * dot(keys, i, j) - kernel.offset, kernel.cap);
    const Real value =
        values.rows > 0 ? dot(values, i, j) * kernel.value_scale + kernel.value_offset : 1;
    return std::exp(exponent) * value;
  };
  return naive_walk(keys.rows, entry, rule.gain, rule.first_is_plus, uniforms);
}

void check_walk(const WalkRule& rule, const kvbench::WalkKernel& kernel, ConstMatrix keys,
                ConstMatrix values, const std::vector<double>& uniforms) {
  const WalkResult walk = balance_walk(rule, kernel, keys, values, uniforms);
  const NaiveWalk naive = expected(rule, kernel, keys, values, uniforms);
  REQUIRE(walk.signs.size() == naive.signs.size());
  bool same = true;
  Real largest = 0;
  std::vector<std::int64_t> histogram(20, 0);
  for (std::size_t j = 0; j < naive.signs.size(); ++j) {
    same = same && walk.signs[j] == naive.signs[j];
    if (j == 0 && rule.first_is_plus) continue;
    const Real p = std::min<Real>(1, std::max<Real>(0, naive.wanted[j]));
    largest = std::max(largest, std::fabs(p - 0.5L));
    ++histogram[static_cast<std::size_t>(std::min<Real>(19, std::floor(20 * p)))];
  }
  CHECK(same);
  CHECK(walk.clamped == naive.outside);
  CHECK(walk.max_abs_p_minus_half == doctest::Approx(static_cast<double>(largest)).epsilon(1e-10));
  CHECK(walk.histogram == histogram);

  const WalkResult held = balance_walk(rule, WalkMatrix(kernel, keys, values), uniforms);
  CHECK(held.signs == walk.signs);
  CHECK(held.clamped == walk.clamped);
  CHECK(held.max_abs_p_minus_half == walk.max_abs_p_minus_half);
  CHECK(held.histogram == walk.histogram);
}

TEST_CASE("the walk, worked: four equal tokens, gain 1/4") {
  // p: 1/2, U 0.6: -1. y = -1: p = 3/4, U 0.3: +1. y = 0: 1/2, U 0.9: -1. y = -1: 3/4, U 0.7: +1.
  const std::vector<double> keys(4, 0.0);
  WalkRule rule;
  rule.gain = 0.25;
  const WalkResult walk = balance_walk(rule, {}, {keys.data(), 4, 1}, {}, {0.6, 0.3, 0.9, 0.7});
  CHECK(walk.signs == std::vector<std::int8_t>{-1, 1, -1, 1});
  CHECK(walk.clamped == 0);
  CHECK(walk.max_abs_p_minus_half == 0.25);
  CHECK(walk.histogram[10] == 2);
  CHECK(walk.histogram[15] == 2);
  CHECK(std::accumulate(walk.histogram.begin(), walk.histogram.end(), 0) == 4);
}

TEST_CASE("the walk, worked: values and keys weigh, p is clamped and counted") {
  // K = exp(k_i k_j) v_i v_j with keys 0 1 1 and values 1 -1 2:
  // K01 = -1, K02 = 2, K12 = -2 e. Gain 1. Token 0: U 0.4: +1. y1 = -1: p = 3/2, clamped, +1.
  // y2 = 2 - 2e = -3.44: p = 3.9, clamped: +1 whatever U.
  const std::vector<double> keys = {0, 1, 1};
  const std::vector<double> values = {1, -1, 2};
  WalkRule rule;
  rule.gain = 1.0;
  const WalkResult walk =
      balance_walk(rule, {}, {keys.data(), 3, 1}, {values.data(), 3, 1}, {0.4, 0.99, 0.999});
  CHECK(walk.signs == std::vector<std::int8_t>{1, 1, 1});
  CHECK(walk.clamped == 2);
  CHECK(walk.max_abs_p_minus_half == 0.5);
  // p exactly 1 or 0 is within [0, 1]: gain 1/2 gives p = 1 at token 1.
  rule.gain = 0.5;
  CHECK(balance_walk(rule, {}, {keys.data(), 2, 1}, {values.data(), 2, 1}, {0.4, 0.99}).clamped ==
        0);
}

TEST_CASE("a forced first sign draws nothing and stands in no statistic") {
  const std::vector<double> keys(3, 0.0);
  WalkRule rule;
  rule.gain = 0.25;
  rule.first_is_plus = true;
  const WalkResult walk = balance_walk(rule, {}, {keys.data(), 3, 1}, {}, {0.99, 0.2, 0.6});
  CHECK(walk.signs == std::vector<std::int8_t>{1, 1, -1});  // p = 1/4, then 0
  CHECK(std::accumulate(walk.histogram.begin(), walk.histogram.end(), 0) == 2);
}

TEST_CASE("every sign is that of the coin-by-coin rule, across block and tile sizes") {
  for (const Index tokens : {1, 2, 7, 8, 9, 47, 48, 49, 97, 255, 256, 257, 300}) {
    for (const auto& [d, dv] : std::vector<std::pair<Index, Index>>{{3, 2}, {64, 17}, {1, 1}}) {
      const auto owned = make_stream({.tokens = tokens, .d = d, .dv = dv, .seed = 5});
      const Stream& stream = owned->stream;
      CAPTURE(tokens);
      CAPTURE(d);
      WalkRule rule;
      kvbench::WalkKernel kernel;
      kernel.beta = stream.shape.scale;
      kernel.offset = 0.7;
      for (const double gain : {1e-9, 0.01, 0.3, 1e6}) {
        CAPTURE(gain);
        rule.gain = gain;
        kernel.value_scale = 1.0;
        kernel.value_offset = 0.0;
        check_walk(rule, kernel, stream.keys, {}, coins(tokens, 1));
        kernel.value_scale = 0.3;
        kernel.value_offset = 0.025;
        check_walk(rule, kernel, stream.keys, stream.values, coins(tokens, 2));
        rule.first_is_plus = true;
        check_walk(rule, kernel, stream.keys, stream.values, coins(tokens, 3));
        rule.first_is_plus = false;
      }
    }
  }
}

TEST_CASE("exponents far beyond a double decide by their sign; far below they vanish") {
  const auto owned = make_stream({.tokens = 120, .d = 4, .dv = 3, .seed = 9});
  const Stream& stream = owned->stream;
  WalkRule rule;
  kvbench::WalkKernel kernel;
  kernel.beta = 100.0;  // exponents up to a few thousand
  kernel.cap = 1e300;
  rule.gain = 4.0;
  kernel.value_offset = 0.025;
  check_walk(rule, kernel, stream.keys, stream.values, coins(120, 1));
  kernel.offset = 4000.0;
  check_walk(rule, kernel, stream.keys, stream.values, coins(120, 2));
  kernel.offset = 0.0;
  kernel.cap = 700.0;  // all large exponents tie at the cap
  check_walk(rule, kernel, stream.keys, stream.values, coins(120, 3));
}

TEST_CASE("a walk over fewer tokens is the beginning of the longer one") {
  const auto owned = make_stream({.tokens = 300, .d = 6, .dv = 4});
  const Stream& stream = owned->stream;
  WalkRule rule;
  kvbench::WalkKernel kernel;
  kernel.beta = stream.shape.scale;
  rule.gain = 0.2;
  const std::vector<double> uniforms = coins(300, 4);
  const WalkResult whole = balance_walk(rule, kernel, stream.keys, stream.values, uniforms);
  for (const Index count : {1, 40, 48, 49, 256, 257, 299}) {
    const WalkResult part = balance_walk(rule, kernel, {stream.keys.data, count, 6},
                                         {stream.values.data, count, 4}, uniforms);
    CHECK(std::equal(part.signs.begin(), part.signs.end(), whole.signs.begin()));
  }
}

TEST_CASE("a walk over nothing is nothing") {
  const WalkResult walk = balance_walk({}, {}, {}, {}, {});
  CHECK(walk.signs.empty());
  CHECK(walk.clamped == 0);
}

}  // namespace balance_walk_test
}  // namespace kvbench::test
