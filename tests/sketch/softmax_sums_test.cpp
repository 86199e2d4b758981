// Weights times exponentials, and the choice of a shift, against sums token by token.
#include "sketch/softmax_sums.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "numerics/canonical.hpp"

namespace kvbench::test {
namespace softmax_sums_test {

constexpr Index kTokens = 37;  // the last group of eight is not full
constexpr double kNothing = -std::numeric_limits<double>::infinity();

struct Row {
  std::int32_t token;
  double w_num;
  double w_den;
  bool keeps_value = true;
};

WeightsByToken weights_of(const std::vector<Row>& rows) {
  Sketch sketch;
  for (const Row& given : rows) {
    SketchRow row;
    row.token = given.token;
    row.w_num = given.w_num;
    row.w_den = given.w_den;
    row.keeps_value = given.keeps_value;
    sketch.add(row);
  }
  WeightsByToken weights(kTokens);
  weights.take(sketch);
  return weights;
}

// Powers of two: every sum below is exact, whatever its order.
std::vector<double> powers() {
  std::vector<double> e;
  for (int j = 0; j < kTokens; ++j) e.push_back(std::ldexp(1.0, -j));
  return e;
}

TEST_CASE("sums run over the tokens of the sketch that the row sees, others count nothing") {
  const std::vector<Row> rows = {{2, 1, 1}, {5, 3, 2}, {6, 0, 4, false}, {17, 5, 0}, {36, 1, 8}};
  const WeightsByToken weights = weights_of(rows);
  std::vector<double> e = powers();
  for (const auto& [first, last] : std::vector<std::pair<Index, Index>>{
           {0, 37}, {0, 36}, {3, 37}, {5, 18}, {6, 6}, {16, 24}, {18, 36}}) {
    TokenSums expected;
    for (const Row& row : rows) {
      if (row.token < first || row.token >= last) continue;
      const double x = e[row.token];
      expected.num += row.w_num * x;
      expected.den += row.w_den * x;
      expected.log += row.w_den > 0 ? row.w_den * std::log(row.w_den) * x : 0.0;
      expected.kept += row.keeps_value ? x : 0.0;
    }
    // The numbers outside are never read.
    std::vector<double> seen = e;
    for (Index j = 0; j < kTokens; ++j) {
      if (j < first || j >= last) seen[j] = std::nan("");
    }
    const TokenSums sums = softmax_sums(weights, {seen.data(), first, last, 0.0});
    CHECK(sums.num == expected.num);
    CHECK(sums.den == expected.den);
    CHECK(sums.kept == expected.kept);
    CHECK(sums.log == doctest::Approx(expected.log).epsilon(1e-15));
  }
}

TEST_CASE("a shift is safe where one token's part of the denominator is, whatever the numerator") {
  std::vector<double> e(kTokens, 0.0);
  e[9] = kSafeDenominator;
  const auto safe = [&](const std::vector<Row>& rows) {
    return is_safe(weights_of(rows), {e.data(), 0, kTokens, 0.0});
  };
  CHECK(safe({{9, 0, 1}}));
  CHECK(safe({{3, 1, 1}, {9, 0, 1}}));
  CHECK_FALSE(safe({{9, 0, 0.999}}));
  CHECK_FALSE(safe({{9, 1e9, 0}}));
  CHECK_FALSE(safe({{3, 1, 1}}));
  CHECK_FALSE(safe({}));
  CHECK_FALSE(is_safe(weights_of({{9, 0, 1}}), {e.data(), 10, kTokens, 0.0}));
}

TEST_CASE(
    "a shift of the sketch's own is the largest logit of what weighs in, or the least given") {
  std::vector<double> x(kTokens);
  for (std::size_t j = 0; j < x.size(); ++j) x[j] = -3000.0 + static_cast<double>(j % 10);
  const WeightsByToken weights = weights_of({{4, 1, 2}, {8, 1, 0}, {9, 0, 0}, {33, 0, 1}});
  std::vector<double> room(3, -7.0);
  const auto check = [&](WeighIn which, double least, double shift,
                         const std::vector<std::size_t>& tokens) {
    const Exponentials own = own_exponentials(weights, which, x.data(), kTokens, least, room);
    CHECK(own.shift == shift);
    CHECK(own.first == 0);
    CHECK(own.last == kTokens);
    std::vector<double> expected(kTokens, 0.0);
    for (const std::size_t j : tokens) expected[j] = canonical_exp(x[j] - shift);
    CHECK(std::vector<double>(own.e, own.e + kTokens) == expected);
  };
  check(WeighIn::kDenominator, kNothing, -2996.0, {4, 33});
  check(WeighIn::kEitherSum, kNothing, -2992.0, {4, 8, 33});
  check(WeighIn::kEitherSum, -2990.0, -2990.0, {4, 8, 33});
  check(WeighIn::kEitherSum, -2999.0, -2992.0, {4, 8, 33});
  const Exponentials none = own_exponentials(weights_of({{9, 0, 0}}), WeighIn::kEitherSum, x.data(),
                                             kTokens, kNothing, room);
  CHECK(none.shift == kNothing);
  CHECK(room == std::vector<double>(kTokens, 0.0));
}

TEST_CASE("the divergence is that of the kept tokens' distribution, under any shift") {
  // p = 1/2, 1/3, 1/6; the sketch has the first two with weights 1 and 2: p^ = 3/7, 4/7.
  const std::vector<double> p = {1.0 / 2, 1.0 / 3, 1.0 / 6};
  const double expected = 3.0 / 7 * std::log(6.0 / 7) + 4.0 / 7 * std::log(12.0 / 7);
  const WeightsByToken weights = weights_of({{0, 1, 1}, {1, 1, 2}});
  for (const double shift : {0.0, -1.0, 0.5}) {
    std::vector<double> e(kTokens, 0.0);
    for (std::size_t j = 0; j < p.size(); ++j) e[j] = p[j] * std::exp(-shift);
    const ExactAnswer exact{nullptr, 0.25, std::exp(-0.25)};  // Z = 1
    const TokenSums sums = softmax_sums(weights, {e.data(), 0, kTokens, shift});
    CHECK(kl_divergence(exact, shift, sums, 0.0) == doctest::Approx(expected).epsilon(1e-14));
    CHECK(kl_divergence(exact, shift, sums, 0.125) ==
          doctest::Approx(expected + 0.125).epsilon(1e-14));
    CHECK(kl_divergence(exact, shift, sums, -9.0) == 0.0);  // rounding, never below
  }
}

}  // namespace softmax_sums_test
}  // namespace kvbench::test
