// The estimator against the formula  sum w_num exp(x) v / sum w_den exp(x)  in long double.
#include "sketch/estimator.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/random_sketch.hpp"

namespace kvbench::test {
namespace estimator_test {

// The estimator's answer at one row, fed with logits rounded from long double.
struct Asked {
  Answer estimate;
  NaiveRow exact;
  NaiveAnswer naive;
};

Asked ask(const Stream& stream, int g, Index row, const Sketch& sketch) {
  Asked out;
  out.exact = naive_row(stream, g, row);
  out.naive = naive_answer(stream, g, row, sketch);
  std::vector<double> x(row + 1, std::nan(""));
  std::vector<double> e(x);
  for (std::size_t j = 0; j < out.exact.x.size(); ++j) {
    const std::size_t at = static_cast<std::size_t>(out.exact.lo) + j;
    x[at] = static_cast<double>(out.exact.x[j]);
    const Real shifted = out.exact.x[j] - out.exact.max;
    e[at] = shifted < -708 ? 0.0 : static_cast<double>(std::exp(shifted));
  }
  std::vector<double> output;
  for (const Real a : out.exact.a) output.push_back(static_cast<double>(a));
  const double max = static_cast<double>(out.exact.max);
  const QueryRow query{row,
                       g,
                       0,
                       {output.data(), max, static_cast<double>(out.exact.z)},
                       TokenLogits{x.data(), e.data(), max}};
  Estimator estimator(stream, cpu_kernels());
  estimator.set_sketch(sketch);
  estimator.enqueue(query);
  estimator.flush([&](const Answer& estimate) { out.estimate = estimate; });
  return out;
}

void check_agreement(const Asked& asked, double tolerance) {
  const Answer& mine = asked.estimate;
  const NaiveAnswer& naive = asked.naive;
  CHECK(mine.empty_denominator == naive.empty_denominator);
  CHECK(mine.clamped.value_or(false) == naive.clamped);
  const auto close = [&](double a, Real b, Real scale) {
    CHECK(std::isfinite(a));
    CHECK(std::fabs(a - static_cast<double>(b)) <= tolerance * static_cast<double>(scale));
  };
  Real z_size = 1e-30L;
  Real n_size = 1e-30L;
  for (const Real z : naive.z) z_size = std::max(z_size, std::fabs(z));
  for (const Real n : naive.numerator) n_size = std::max(n_size, std::fabs(n));
  for (std::size_t k = 0; k < naive.z.size(); ++k) {
    close(mine.answer[k], naive.z[k], z_size);
    close(mine.numerator[k], naive.numerator[k], n_size);
  }
  close(mine.normalizer, naive.denominator, std::fabs(naive.denominator) + 1e-290L);
  close(mine.numerator_mass, naive.numerator_mass / asked.exact.z,
        naive.numerator_mass / asked.exact.z + 1e-290L);
  close(mine.denominator_mass, naive.denominator / asked.exact.z,
        std::fabs(naive.denominator) / asked.exact.z + 1e-290L);
}

TEST_CASE("answers and both sums agree with the formula for every kind of sketch") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 30, .d = 5, .dv = 7, .heads_per_kv = 3},
      {.tokens = 40, .d = 8, .dv = 41, .window = 11},
      {.tokens = 25, .d = 4, .dv = 4, .softcap = 3.0, .query_size = 4},
      {.tokens = 20, .d = 6, .dv = 1, .kind = StreamKind::kEqualKeys}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const SketchKind kind : kAllSketchKinds) {
      CAPTURE(static_cast<int>(kind));
      for (const Index row : {Index{0}, spec.tokens / 2, spec.tokens - 1}) {
        const Sketch sketch = random_sketch(owned->stream, row, kind, 11);
        for (int g = 0; g < spec.heads_per_kv; ++g) {
          check_agreement(ask(owned->stream, g, row, sketch), 1e-13);
        }
      }
    }
  }
}

TEST_CASE("logits of 1e4 neither overflow nor lose the answer, whatever the sketch holds") {
  const auto owned = make_stream({.tokens = 30, .d = 3, .kind = StreamKind::kHugeLogits});
  for (const SketchKind kind : kAllSketchKinds) {
    CAPTURE(static_cast<int>(kind));
    for (Index row = 0; row < 30; ++row) {
      CAPTURE(row);
      const Sketch sketch = random_sketch(owned->stream, row, kind, 2);
      check_agreement(ask(owned->stream, 0, row, sketch), 1e-10);
    }
  }
}

TEST_CASE("a key of the sketch's own may have a logit far above the row's largest") {
  // Logits of the tokens: 0 and 1; of the own key: `above`.
  const auto owned = stream_of({{0}, {1}}, {{3}, {5}}, {{{1}, {1}}});
  for (const double above : {3.0, 100.0, 600.0, -2000.0}) {
    CAPTURE(above);
    Sketch sketch;
    sketch.add_exact(0, 2);
    sketch.own_keys = {{above}};
    sketch.own_values = {{20}};
    SketchRow row;
    row.own_key = row.own_value = 0;
    row.w_num = 2.0;
    row.w_den = 0.5;
    sketch.add(row);
    const Asked asked = ask(owned->stream, 0, 1, sketch);
    check_agreement(asked, 1e-13);
    CHECK(!asked.estimate.rows_are_tokens);
    CHECK(!asked.estimate.kl_divergence);
    if (above > 50.0) CHECK(asked.estimate.answer[0] == doctest::Approx(80.0).epsilon(1e-13));
  }
}

TEST_CASE("divergence of logits near 1e77: the logarithms do not vanish beside them") {
  // Four equal logits, all kept: the same distribution. Two of the four kept: ln 2.
  const auto owned =
      stream_of({{1e77}, {1e77}, {1e77}, {1e77}}, {{1}, {2}, {3}, {4}}, {{{1}, {1}, {1}, {1}}});
  Sketch all;
  all.add_exact(0, 4);
  const Asked of_all = ask(owned->stream, 0, 3, all);
  REQUIRE(of_all.estimate.kl_divergence);
  CHECK(*of_all.estimate.kl_divergence == 0.0);
  Sketch half;
  half.add_exact(1, 3);
  const Asked of_half = ask(owned->stream, 0, 3, half);
  REQUIRE(of_half.estimate.kl_divergence);
  CHECK(*of_half.estimate.kl_divergence == doctest::Approx(std::log(2.0)).epsilon(1e-15));
}

TEST_CASE("tokens far below the row's largest logit still answer with full precision") {
  // The sketch misses token 0, whose logit is 2000 above the others.
  const auto owned = stream_of({{2000}, {1}, {2}}, {{5}, {10}, {20}}, {{{1}, {1}, {1}}});
  Sketch sketch;
  sketch.add_exact(1, 3);
  const Asked asked = ask(owned->stream, 0, 2, sketch);
  const double e = std::exp(1.0);
  CHECK(!asked.estimate.empty_denominator);
  CHECK(asked.estimate.answer[0] == doctest::Approx((10 + 20 * e) / (1 + e)).epsilon(1e-14));
  CHECK(asked.estimate.normalizer == 0.0);
  REQUIRE(asked.estimate.kl_divergence);
  // Plain eviction: -ln of the kept mass, exp(1 - 2000) + exp(2 - 2000) of all.
  CHECK(*asked.estimate.kl_divergence == doctest::Approx(1999.0 - std::log(1 + e)).epsilon(1e-13));
}

TEST_CASE("a denominator that vanishes under the numerator's shift is empty and answers zero") {
  const auto owned = stream_of({{2000}, {1}}, {{5}, {10}}, {{{1}, {1}}});
  Sketch sketch;
  SketchRow slot;
  slot.token = 0;
  slot.w_num = 1.0;
  sketch.add(slot);
  SketchRow sample;
  sample.token = 1;
  sample.w_den = 2.0;
  sketch.add(sample);
  const Asked asked = ask(owned->stream, 0, 1, sketch);
  CHECK(asked.estimate.empty_denominator);
  CHECK(asked.estimate.answer[0] == 0.0);
}

TEST_CASE("negative weights in the denominator, worked") {
  // Logits 0: two tokens of values 1 and 4, denominator 1 - 1/4.
  const auto owned = stream_of({{0}, {0}}, {{1}, {4}}, {{{0}, {0}}});
  Sketch sketch;
  sketch.add_exact(0, 2);
  sketch.set_weights(1, 1.0, -0.25);
  const Answer answer = ask(owned->stream, 0, 1, sketch).estimate;
  CHECK(answer.answer[0] == doctest::Approx(5 / 0.75).epsilon(1e-15));
  CHECK(answer.normalizer == 0.75);
  CHECK(!answer.empty_denominator);
  CHECK(!answer.kl_divergence);  // weights below 0 are not probabilities
  CHECK(answer.kept_mass);
  CHECK(!answer.clamped);
  // Without a rule too, a sum that is not positive answers zero.
  sketch.set_weights(1, 1.0, -1.0);
  CHECK(ask(owned->stream, 0, 1, sketch).estimate.empty_denominator);
  sketch.set_weights(1, 1.0, -2.0);
  const Answer negative = ask(owned->stream, 0, 1, sketch).estimate;
  CHECK(negative.empty_denominator);
  CHECK(negative.answer[0] == 0.0);
  CHECK(negative.normalizer == -1.0);
}

TEST_CASE("a rule for answers, worked: too small a denominator, and channels within their range") {
  const auto owned = stream_of({{0}, {0}}, {{1, -1}, {4, 3}}, {{{0}, {0}}});
  Sketch sketch;
  sketch.add_exact(0, 2);
  sketch.set_weights(1, 1.0, -0.25);  // numerator mass 2, denominator 3/4, sums 5 and 2
  const auto ruled = [&](const AnswerRule& rule) {
    sketch.answer_rule = std::make_shared<const AnswerRule>(rule);
    return ask(owned->stream, 0, 1, sketch).estimate;
  };
  const Answer free = ruled({.least_denominator = 0.374, .low = {}, .high = {}});
  CHECK(free.answer[0] == doctest::Approx(20.0 / 3).epsilon(1e-15));
  CHECK(!free.clamped);
  const Answer none = ruled({.least_denominator = 0.375, .low = {}, .high = {}});
  CHECK(none.empty_denominator);
  CHECK(none.answer == std::vector<double>{0, 0});
  CHECK(none.numerator == std::vector<double>{5, 2});
  // An answer of 0 is clamped like every answer.
  const Answer inside = ruled({.least_denominator = 0.375, .low = {1, -1}, .high = {4, 3}});
  CHECK(inside.empty_denominator);
  CHECK(inside.answer == std::vector<double>{1, 0});
  CHECK(inside.clamped == true);
  const Answer clamped = ruled({.low = {1, 2.75}, .high = {4, 5}});
  CHECK(clamped.answer == std::vector<double>{4, 2.75});
  CHECK(clamped.clamped == true);
  CHECK(ruled({.low = {1, 1}, .high = {7, 3}}).clamped == false);
  sketch.answer_rule = std::make_shared<const AnswerRule>(
      AnswerRule{.least_denominator = 1, .low = {1, 1}, .high = {2, 2}});
  CHECK(sketch.kept_counts().bookkeeping == 4);
}

TEST_CASE("kept mass counts distinct tokens whose value is kept") {
  // Logits 0, ln 2, ln 3: probabilities 1/6, 2/6, 3/6.
  const auto owned =
      stream_of({{0}, {std::log(2.0)}, {std::log(3.0)}}, {{1}, {1}, {1}}, {{{1}, {1}, {1}}});
  Sketch sketch;
  for (const int token : {1, 1, 2, 0}) {
    SketchRow row;
    row.token = token;
    row.w_num = 0.5;
    row.w_den = 0.25;
    row.keeps_value = token != 0;
    sketch.add(row);
  }
  const Asked asked = ask(owned->stream, 0, 2, sketch);
  REQUIRE(asked.estimate.kept_mass);
  CHECK(*asked.estimate.kept_mass == doctest::Approx(5.0 / 6.0).epsilon(1e-15));
  // Weights 1/4, 1/2, 1/4 on masses 1/6, 2/6, 3/6.
  CHECK(asked.estimate.denominator_mass == doctest::Approx(8.0 / 24.0).epsilon(1e-15));
  // p^ = 1/8, 4/8, 3/8.
  REQUIRE(asked.estimate.kl_divergence);
  const double kl = 1.0 / 8 * std::log(6.0 / 8) + 4.0 / 8 * std::log(3.0 * 4 / 8) +
                    3.0 / 8 * std::log(2.0 * 3 / 8);
  CHECK(*asked.estimate.kl_divergence == doctest::Approx(kl).epsilon(1e-14));
}

}  // namespace estimator_test
}  // namespace kvbench::test
