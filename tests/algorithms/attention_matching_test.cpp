// attention_matching: worked fits, a dense oracle in long double, what the method promises, and
// where it cannot run.
#include <doctest/doctest.h>

#include <cmath>

#include "support/given.hpp"
#include "support/naive_matching.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/threads.hpp"
#include "support/weighted_tokens.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace attention_matching_test {

Given given_of(const NaiveMatching& rule) {
  Given out{{"budget", count_of(rule.budget)},
            {"sinks", count_of(rule.sinks)},
            {"recent", count_of(rule.recent)},
            {"select", word_of(rule.select)},
            {"bias", word_of(rule.fits_weights ? "nnls" : "zero")},
            {"values", word_of(rule.fits_values ? "lsq" : "own")},
            {"reference", word_of(rule.rows == 0 ? "prompt" : "last")},
            {"masked", Value{rule.masked}},
            {"ridge", number(static_cast<double>(rule.ridge))},
            {"steps", count_of(rule.steps)},
            {"bias_low", number(static_cast<double>(rule.low))},
            {"bias_high", number(static_cast<double>(rule.high))},
            {"drop", number(static_cast<double>(rule.drop))},
            {"keys_per_step", count_of(rule.keys_per_step)},
            {"steps_per_solve", count_of(rule.steps_per_solve)}};
  if (rule.rows > 0) out.emplace_back("rows", count_of(rule.rows));
  return out;
}

// The algorithm at the end of the prompt, and its rows that are fitted.
struct Fitted {
  std::vector<SketchRow> rows;
  std::vector<std::vector<double>> values;  // by row
  Derived derived;
};

Fitted fitted(const Stream& stream, Index prompt, const NaiveMatching& rule) {
  const AlgorithmDescription& algorithm = algorithm_named("attention_matching");
  Stepper stepper(stream, prompt, algorithm, params_for(algorithm, given_of(rule)));
  stepper.next();
  Fitted out;
  out.derived = stepper.algorithm().derived();
  const Sketch& sketch = stepper.sketch();
  for (const SketchRow& row : sketch.rows()) {
    if (row.token < rule.sinks || row.token >= prompt - rule.recent) {
      CHECK(row.w_num == 1.0);
      CHECK(row.w_den == 1.0);
      CHECK(row.own_value == -1);
      CHECK(row.weight_numbers == 0);
      continue;
    }
    out.rows.push_back(row);
    const double* own = stream.values.row(row.token);
    out.values.push_back(row.own_value >= 0 ? sketch.own_values[row.own_value]
                                            : std::vector<double>(own, own + stream.shape.dv));
  }
  return out;
}

// A fit of t tokens with ridge r has a condition of at most t / r + 1, which multiplies the
// rounding of 1.1e-16: 1.5e-12 for 13 tokens and the ridge of 1e-3 of most tests, 1e-9 for 9 and
// the default. The tolerances allow more than that for the steps of a fit.
constexpr double kWithin = 1e-10;
constexpr double kWithinByDefault = 1e-8;

void check_as_naive(const Stream& stream, Index prompt, const NaiveMatching& rule, double within) {
  const NaiveMatched naive = naive_matching(stream, prompt, rule);
  const Fitted ours = fitted(stream, prompt, rule);
  REQUIRE(ours.rows.size() == naive.tokens.size());
  for (std::size_t i = 0; i < ours.rows.size(); ++i) {
    const SketchRow& row = ours.rows[i];
    CHECK(row.token == naive.tokens[i]);
    CHECK(row.w_num == row.w_den);
    CHECK(row.weight_numbers == (rule.fits_weights ? 1 : 0));
    CHECK(row.w_num == doctest::Approx(static_cast<double>(naive.weights[i])).epsilon(within));
    for (std::size_t k = 0; k < ours.values[i].size(); ++k) {
      CHECK(std::abs(ours.values[i][k] - static_cast<double>(naive.values[i][k])) <
            10 * within * (1 + std::abs(static_cast<double>(naive.values[i][k]))));
    }
  }
  CHECK(std::abs(derived_real(ours.derived, "sum_residual") -
                 static_cast<double>(naive.sum_residual)) < within);
  CHECK(std::abs(derived_real(ours.derived, "output_residual") -
                 static_cast<double>(naive.output_residual)) < within);
}

std::vector<StreamSpec> specs() {
  return {{.tokens = 40, .d = 5, .dv = 3, .heads_per_kv = 3, .query_size = 3},
          {.tokens = 40, .d = 16, .dv = 2, .query_size = 2},
          {.tokens = 40, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
          {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 22, .query_size = 3},
          {.tokens = 40, .d = 4, .dv = 4, .heads_per_kv = 2, .kind = StreamKind::kClustered},
          {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
          {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
          {.tokens = 40, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 19}};
}

double relative_l2(const Stream& stream, Index prompt, const NaiveMatching& rule) {
  const AlgorithmDescription& algorithm = algorithm_named("attention_matching");
  const CellResult result =
      replay_one(stream, prompt, algorithm, params_for(algorithm, given_of(rule)));
  return result.metrics["errors.relative_l2.max"].value();
}

TEST_CASE("one reference, worked: the dual system, the gradient step, the values") {
  // Exponentials 1, 1/2, 1/4, sum 7/4. Tokens 0 and 1: M = (1, 1/2), |M|^2 = 5/4, and with ridge 1
  // the shift is 5/8: weights M (7/4) / (15/8) = (14/15, 7/15).
  const auto owned = weighted_tokens({4, 2, 1, 1}, {{7}, {14}, {21}, {0}});
  NaiveMatching rule{.budget = 2, .rows = 1, .ridge = 1, .steps = 0};
  Fitted got = fitted(owned->stream, 3, rule);
  REQUIRE(got.rows.size() == 2);
  CHECK(got.rows[0].token == 0);
  CHECK(got.rows[1].token == 1);
  CHECK(got.rows[0].w_num == doctest::Approx(14.0 / 15).epsilon(1e-14));
  CHECK(got.rows[1].w_num == doctest::Approx(7.0 / 15).epsilon(1e-14));
  // X = (4/5, 1/5), |X|^2 = 17/25, shift 17/50; Y = (28 + 28 + 21) / 7 = 11: C = X 11 / (51/50).
  CHECK(got.values[0][0] == doctest::Approx(11.0 * 40 / 51).epsilon(1e-14));
  CHECK(got.values[1][0] == doctest::Approx(11.0 * 10 / 51).epsilon(1e-14));
  CHECK(derived_real(got.derived, "sum_residual") == doctest::Approx(1.0 / 3).epsilon(1e-14));
  CHECK(derived_real(got.derived, "output_residual") == doctest::Approx(1.0 / 3).epsilon(1e-14));
  CHECK(derived_real(got.derived, "references") == 1);
  // One step along the gradient meets the sum: M w = 7/4.
  rule.steps = 1;
  got = fitted(owned->stream, 3, rule);
  CHECK(got.rows[0].w_num == doctest::Approx(1.4).epsilon(1e-14));
  CHECK(got.rows[1].w_num == doctest::Approx(0.7).epsilon(1e-14));
  // Within [e^-3, e^0].
  rule.high = 0;
  got = fitted(owned->stream, 3, rule);
  CHECK(got.rows[0].w_num == 1.0);
  CHECK(got.rows[1].w_num == doctest::Approx(0.7).epsilon(1e-14));
}

TEST_CASE("the fit is the dense oracle's for every selection, stream and reference") {
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(spec);
    CAPTURE(spec.window);
    CAPTURE(spec.softcap);
    for (const char* select : {"rms", "max", "mean"}) {
      for (const Index rows : {0, 3, 12}) {
        for (const bool masked : {true, false}) {
          CAPTURE(select);
          CAPTURE(rows);
          CAPTURE(masked);
          const NaiveMatching rule{.budget = 13,
                                   .sinks = 2,
                                   .recent = 3,
                                   .select = select,
                                   .rows = rows,
                                   .masked = masked,
                                   .ridge = 1e-3L};
          check_as_naive(owned->stream, 36, rule, kWithin);
          NaiveMatching own = rule;
          own.sinks = own.recent = 0;
          own.fits_values = false;
          check_as_naive(owned->stream, 36, own, kWithin);
          own.fits_weights = false;
          check_as_naive(owned->stream, 36, own, 1e-12);
          own.fits_values = true;
          check_as_naive(owned->stream, 36, own, kWithin);
        }
      }
    }
  }
}

TEST_CASE("the default ridge loses no more than its condition allows") {
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(spec);
    check_as_naive(owned->stream, 36, {.budget = 9}, kWithinByDefault);
    check_as_naive(owned->stream, 36, {.budget = 9, .rows = 2}, kWithinByDefault);
  }
}

TEST_CASE("the pursuit is the dense oracle's: tokens, weights, drops and refills") {
  Index dropped = 0;
  for (const StreamSpec& spec : specs()) {
    const auto owned = make_stream(spec);
    CAPTURE(spec.window);
    for (const Real drop : {-700.0L, -7.0L, -0.5L}) {
      for (const Index keys : {1, 3}) {
        for (const Index interval : {1, 2}) {
          CAPTURE(static_cast<double>(drop));
          CAPTURE(keys);
          CAPTURE(interval);
          const NaiveMatching rule{.budget = 11,
                                   .sinks = 1,
                                   .recent = 2,
                                   .select = "omp",
                                   .rows = 12,
                                   .ridge = 1e-3L,
                                   .low = -4,
                                   .high = 7,
                                   .drop = drop,
                                   .keys_per_step = keys,
                                   .steps_per_solve = interval};
          check_as_naive(owned->stream, 36, rule, kWithin);
          NaiveMatching no_drop = rule;
          no_drop.drop = -700;
          dropped += naive_matching(owned->stream, 36, rule).tokens !=
                             naive_matching(owned->stream, 36, no_drop).tokens
                         ? 1
                         : 0;
        }
      }
    }
  }
  CHECK(dropped > 4);
}

TEST_CASE("biases stay within their limits") {
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 2, .query_size = 4});
  Index at_limit = 0;
  for (const char* select : {"rms", "omp"}) {
    const NaiveMatching rule{
        .budget = 20, .select = select, .low = -0.1L, .high = 0.2L, .drop = -700};
    for (const SketchRow& row : fitted(owned->stream, 50, rule).rows) {
      CHECK(row.w_num >= std::exp(-0.1));
      CHECK(row.w_num <= std::exp(0.2));
      at_limit += row.w_num == std::exp(-0.1) || row.w_num == std::exp(0.2) ? 1 : 0;
    }
  }
  CHECK(at_limit > 4);
}

TEST_CASE("a prompt of no or one token, and one that fits, are kept as they are") {
  const auto owned = make_stream({.tokens = 12, .d = 4, .dv = 2});
  for (const Index prompt : {0, 1, 5, 8}) {
    for (const char* select : {"rms", "omp"}) {
      const NaiveMatching rule{.budget = 8, .select = select};
      CHECK(relative_l2(owned->stream, prompt, rule) == 0.0);
    }
  }
  // Nothing is left for the middle: sinks and recent alone.
  const Fitted none = fitted(owned->stream, 10, {.budget = 5, .sinks = 2, .recent = 3});
  CHECK(none.rows.empty());
  CHECK(derived_real(none.derived, "fitted") == 0);
}

TEST_CASE("sinks that left a sliding window take no part of the budget") {
  // At prompt 40 the last 19 tokens are visible: no sink, three recent ones and 16 others.
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 2, .window = 20});
  const Fitted got = fitted(owned->stream, 40, {.budget = 10, .sinks = 4, .recent = 3});
  CHECK(got.rows.size() == 7);
  CHECK(derived_real(got.derived, "fitted") == 7);
  // Two of four sinks are visible of prompt 21.
  const Fitted two = fitted(owned->stream, 21, {.budget = 10, .sinks = 4, .recent = 3});
  CHECK(two.rows.size() == 5);
}

TEST_CASE("another method's tokens are fitted as those of its own rules") {
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2});
  const AlgorithmDescription& algorithm = algorithm_named("attention_matching");
  const auto given = [](const char* select, const char* bias, const char* values) {
    return Given{{"budget", count_of(40)},
                 {"select", word_of(select)},
                 {"bias", word_of(bias)},
                 {"values", word_of(values)}};
  };
  for (const char* select : {"snapkv", "knorm", "keydiff", "curdkv", "qfilters"}) {
    CAPTURE(std::string(select));
    // Own values and no biases: the other method itself.
    const auto theirs = kept_by(select, owned->stream, 50, {{"budget", count_of(40)}});
    CHECK(kept_by("attention_matching", owned->stream, 50, given(select, "zero", "own")) == theirs);
    const auto residual = [&](const char* bias, const char* values) {
      Stepper stepper(owned->stream, 50, algorithm,
                      params_for(algorithm, given(select, bias, values)));
      stepper.next();
      return derived_real(stepper.algorithm().derived(), "output_residual");
    };
    CHECK(kept_by("attention_matching", owned->stream, 50, given(select, "nnls", "lsq")) == theirs);
    CHECK(residual("zero", "lsq") < residual("zero", "own"));
  }
}

TEST_CASE("sinks and recent tokens are those of the method that selects, and exact") {
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 2, .heads_per_kv = 2});
  const auto check = [&](const char* select, const Given& ours, const Given& theirs, Index sinks,
                         Index recent) {
    Given given{{"budget", count_of(30)}, {"select", word_of(select)}};
    given.insert(given.end(), ours.begin(), ours.end());
    Given plain{{"budget", count_of(30)}};
    plain.insert(plain.end(), theirs.begin(), theirs.end());
    CHECK(kept_by("attention_matching", owned->stream, 50, given) ==
          kept_by(select, owned->stream, 50, plain));
    const Sketch sketch = sketches_of("attention_matching", owned->stream, 50, given).front();
    for (const SketchRow& row : sketch.rows()) {
      const bool exact = row.token < sinks || row.token >= 50 - recent;
      CHECK((row.own_value < 0) == exact);
      CHECK((row.weight_numbers == 0) == exact);
    }
  };
  check("snapkv", {{"recent", count_of(8)}}, {{"window", count_of(8)}}, 0, 8);
  check("knorm", {{"sinks", count_of(3)}, {"recent", count_of(5)}},
        {{"sinks", count_of(3)}, {"recent", count_of(5)}}, 3, 5);
  check("curdkv", {{"sinks", count_of(2)}}, {{"sinks", count_of(2)}}, 2, 0);
}

TEST_CASE("tokens that no reference attends to have the least weight and values of their own fit") {
  // Every query attends to token 0 alone; knorm keeps the short keys of the others.
  Rows keys(12, {0.0, 0.1});
  keys[0] = {10.0, 0.0};
  const auto owned = stream_of(keys, Rows(12, {1.0}), {Rows(12, {1000.0, 0.0})});
  const AlgorithmDescription& algorithm = algorithm_named("attention_matching");
  const Given given{{"budget", count_of(3)}, {"select", word_of("knorm")}};
  Stepper stepper(owned->stream, 10, algorithm, params_for(algorithm, given));
  stepper.next();
  CHECK(kept_tokens(stepper.sketch()) == std::vector<Index>{1, 2, 3, 10});
  CHECK(stepper.sketch()[0].w_num == std::exp(-3.0));
  CHECK(derived_real(stepper.algorithm().derived(), "sum_residual") == 1.0);
}

TEST_CASE("what the method that select names does not take is refused, its skips are the cell's") {
  const AlgorithmDescription& algorithm = algorithm_named("attention_matching");
  const auto refused = [&](Given given) {
    given.emplace_back("budget", count_of(40));
    const auto clause = algorithm.validate(params_for(algorithm, given));
    return clause ? clause->first : "";
  };
  CHECK(refused({{"select", word_of("snapkv")}, {"sinks", count_of(2)}}) == "sinks");
  CHECK(refused({{"select", word_of("curdkv")}, {"recent", count_of(2)}}) == "recent");
  CHECK(refused({{"select", word_of("curdkv")}, {"sinks", count_of(2)}}).empty());
  CHECK(refused({{"select", word_of("snapkv")}, {"recent", count_of(2)}}).empty());
  CHECK(refused({{"select", word_of("snapkv")}, {"recent", number(0.5)}}) == "recent");
  CHECK(refused({{"select", word_of("rms")}, {"sinks", count_of(2)}}).empty());
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  const auto skip = [&](const char* select, Index budget) {
    return skip_of("attention_matching", shape, 50,
                   {{"budget", count_of(budget)}, {"select", word_of(select)}});
  };
  CHECK(skip("snapkv", 40).empty());
  CHECK(skip("snapkv", 32).find("window of 32") != std::string::npos);
  CHECK(skip("expected_attention", 40).find("RoPE") != std::string::npos);
  CHECK(skip("rms", 32).empty());
}

TEST_CASE("more tokens than references need a ridge") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2, .kind = StreamKind::kEqualKeys});
  const NaiveMatching rule{.budget = 9, .rows = 3, .ridge = 0};
  CHECK_THROWS_AS(fitted(owned->stream, 20, rule), CellError);
  NaiveMatching pursuing = rule;
  pursuing.select = "omp";
  CHECK_THROWS_AS(fitted(owned->stream, 20, pursuing), CellError);
  NaiveMatching ridged = rule;
  ridged.ridge = 1e-6L;
  CHECK(fitted(owned->stream, 20, ridged).rows.size() == 9);
}

TEST_CASE("what the prompt's queries do not allow is skipped, what contradicts itself is refused") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  const auto skip = [&](const NaiveMatching& rule) {
    return skip_of("attention_matching", shape, 40, given_of(rule));
  };
  CHECK(skip({.budget = 8}).empty());
  CHECK(!skip({.budget = 8, .sinks = 4, .recent = 5}).empty());
  shape.first_query = 30;
  CHECK(!skip({.budget = 8}).empty());
  CHECK(!skip({.budget = 8, .rows = 11}).empty());
  CHECK(skip({.budget = 8, .rows = 10}).empty());
  CHECK(!skip({.budget = 8, .rows = 0}).empty());
  CHECK(skip({.budget = 40, .rows = 0}).empty());
  const AlgorithmDescription& algorithm = algorithm_named("attention_matching");
  const auto refused = [&](const Given& given) {
    const auto clause = algorithm.validate(params_for(algorithm, given));
    return clause ? clause->first : "";
  };
  CHECK(refused({{"budget", count_of(8)}, {"bias_low", number(4)}}) == "bias_low");
  CHECK(refused({{"budget", count_of(8)}, {"bias_low", number(4)}, {"select", word_of("omp")}})
            .empty());
  CHECK(refused({{"budget", count_of(8)}}).empty());
}

}  // namespace attention_matching_test
}  // namespace kvbench::test
