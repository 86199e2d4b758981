// softmax_balance: the partition that the walk makes, its sides, rounds, constants and counts.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "numerics/counter_rng.hpp"
#include "support/balance_rows.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace softmax_balance_test {

struct Asked {
  Index T = 1;
  Value c = number(1.0);
  Value r = word_of("oracle");
  std::string side = "smaller";
  Index sinks = 0;
  Index recent = 0;
  double fail_prob = 0.01;

  Given given() const {
    return {{"T", count_of(T)},
            {"c", c},
            {"r", r},
            {"side", word_of(side)},
            {"sinks", count_of(sinks)},
            {"recent", count_of(recent)},
            {"fail_prob", number(fail_prob)}};
  }
};

struct Run {
  BalanceRows rows;
  Derived derived;
  Counters counters;
};

Run run(const Stream& stream, Index prompt, const Asked& asked, std::uint32_t seed) {
  const AlgorithmDescription& algorithm = algorithm_named("softmax_balance");
  const Params params = params_for(algorithm, asked.given());
  Stepper stepper(stream, prompt, algorithm, params, seed);
  REQUIRE(stepper.next());
  return {balance_rows(stepper.sketch()), stepper.algorithm().derived(),
          stepper.algorithm().counters()};
}

Side side_of(const std::string& word) {
  return word == "smaller" ? Side::kSmaller : word == "random" ? Side::kRandom : Side::kExactHalf;
}

struct Expected {
  std::vector<Index> kept;
  Index fail = 0;
  Real largest = 0;  // |p - 1/2|
};

Expected expected(const Stream& stream, Index first, Index last, Index T, Real c, Real r,
                  bool numerator, const std::string& side, std::uint32_t seed) {
  Expected out;
  for (Index j = first; j < last; ++j) out.kept.push_back(j);
  const CounterRng random(seed, stream.id.hash(),
                          numerator ? "softmax_balance/numerator" : "softmax_balance/denominator");
  for (Index round = 0; round < T; ++round) {
    const auto coin = [&](Index token, int which) {
      const auto at = static_cast<std::uint32_t>(token);
      const auto slot = static_cast<std::uint32_t>(which);
      const auto level = static_cast<std::uint32_t>(round);
      return which == 2 ? random.uniform53(at, slot, level) : random.uniform(at, slot, level);
    };
    const NaiveHalf half = naive_softmax_balance(
        stream, out.kept, c, r, numerator ? largest_norm(stream.values) : 0, side_of(side), coin);
    out.kept = half.kept;
    out.fail += half.walk.outside;
    for (const Real p : half.walk.wanted) {
      out.largest =
          std::max(out.largest, std::fabs(std::min<Real>(1, std::max<Real>(0, p)) - 0.5L));
    }
  }
  return out;
}

TEST_CASE("softmax_balance, worked: equal keys under a tiny c come in pairs of opposite signs") {
  // Keys zero, values 1, r 1 (scale 1, so the kernel is e^-1 everywhere). After an odd number of
  // steps |y| = e^-1 or more, far above c R^2, and p is clamped to the opposite sign; after an even
  // number y = 0 and the coin is fair. So each pair (2i, 2i + 1) is split: both classes have four
  // of eight tokens, the tie goes to +1, and every second step fails, in both sums.
  auto owned = stream_of(Rows(9, {0.0}), Rows(9, {1.0}), {Rows(9, {0.0})});
  std::set<std::vector<Index>> seen;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Asked asked;
    asked.c = number(1e-6);
    asked.r = number(1.0);
    const Run result = run(owned->stream, 8, asked, seed);
    for (const auto* rows : {&result.rows.numerator, &result.rows.denominator}) {
      REQUIRE(rows->size() == 4);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK((*rows)[i].token / 2 == static_cast<Index>(i));
        CHECK((*rows)[i].weight == 2.0);
      }
    }
    CHECK(result.rows.exact == std::vector<Index>{8});
    CHECK(result.counters.clamped == 8);
    CHECK(derived_real(result.derived, "max_abs_p_minus_half") == 0.5);
    seen.insert(tokens_of(result.rows.numerator));
    seen.insert(tokens_of(result.rows.denominator));
  }
  CHECK(seen.size() > 10);  // 16 possible ones in 80 draws: sums and seeds draw apart
}

TEST_CASE("softmax_balance, worked: ten rounds of halving seven tokens leave nothing") {
  auto owned = stream_of(Rows(8, {0.0}), Rows(8, {1.0}), {Rows(8, {0.0})});
  Asked asked;
  asked.T = 10;
  const Run result = run(owned->stream, 7, asked, 0);
  CHECK(result.rows.numerator.empty());
  CHECK(result.rows.denominator.empty());
  CHECK(result.rows.exact == std::vector<Index>{7});
}

TEST_CASE("softmax_balance keeps what the coin-by-coin rule keeps, for every side, c, r and T") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 90, .d = 6, .dv = 4, .seed = 2},
      {.tokens = 90, .d = 16, .dv = 3, .kind = StreamKind::kClustered},
      {.tokens = 90, .d = 4, .dv = 3, .softcap = 2.0, .kind = StreamKind::kSomeZeroValues}};
  std::uint32_t seed = 10;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    const Stream& stream = owned->stream;
    const double oracle = largest_norm(stream.keys);
    for (const Index T : {1, 2, 4}) {
      for (const std::string side : {"smaller", "random", "exact_half"}) {
        for (const double c : {0.0, 20.0, 0.5, 1e-3}) {                           // 0: theory
          for (const double r : {0.0, median_norm(stream.keys), 0.3 * oracle}) {  // 0: oracle
            CAPTURE(T);
            CAPTURE(side);
            CAPTURE(c);
            CAPTURE(r);
            Asked asked;
            asked.T = T;
            asked.side = side;
            asked.sinks = 5;
            asked.recent = 7;
            asked.fail_prob = 0.05;
            asked.c = c > 0.0 ? number(c) : word_of("theory");
            asked.r = r > 0.0 ? number(r) : word_of("oracle");
            const Real used_c = c > 0.0 ? Real{c} : 30 * std::log(90 / 0.05L);
            const double used_r = r > 0.0 ? r : oracle;
            const Run result = run(stream, 81, asked, ++seed);
            const Expected numerator = expected(stream, 5, 74, T, used_c, used_r, true, side, seed);
            const Expected denominator =
                expected(stream, 5, 74, T, used_c, used_r, false, side, seed);
            CHECK(tokens_of(result.rows.numerator) == numerator.kept);
            CHECK(tokens_of(result.rows.denominator) == denominator.kept);
            for (const BalanceRow& row : result.rows.numerator) {
              CHECK(row.weight == std::pow(2.0, static_cast<double>(T)));
            }
            for (const BalanceRow& row : result.rows.denominator) {
              CHECK(row.weight == std::pow(2.0, static_cast<double>(T)));
            }
            CHECK(result.counters.clamped == numerator.fail + denominator.fail);
            CHECK(derived_real(result.derived, "max_abs_p_minus_half") ==
                  doctest::Approx(
                      static_cast<double>(std::max(numerator.largest, denominator.largest)))
                      .epsilon(1e-12));
            CHECK(derived_real(result.derived, "c") ==
                  doctest::Approx(static_cast<double>(used_c)).epsilon(1e-14));
            CHECK(derived_real(result.derived, "r") == doctest::Approx(used_r).epsilon(1e-14));
          }
        }
      }
    }
  }
}

TEST_CASE("every step of every walk stands in the histogram of p") {
  const auto owned = make_stream({.tokens = 60, .d = 6, .dv = 4});
  Asked asked;
  asked.T = 2;
  asked.side = "exact_half";
  asked.sinks = 4;
  const Run result = run(owned->stream, 50, asked, 3);
  for (const auto& [name, value] : result.derived) {
    if (name != "p_histogram") continue;
    double steps = 0.0;
    for (const double count : std::get<std::vector<double>>(value)) steps += count;
    CHECK(steps == 2 * (46 + 23));  // both sums, both rounds
    return;
  }
  FAIL("no p_histogram");
}

TEST_CASE("a single token has no half; T = 0 keeps all with weight 1") {
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2});
  Asked asked;
  asked.sinks = 19;
  CHECK(run(owned->stream, 20, asked, 1).rows.numerator.empty());
  CHECK(run(owned->stream, 20, asked, 1).rows.exact.size() == 20);
  asked.T = 0;
  asked.sinks = 2;
  const Run whole = run(owned->stream, 20, asked, 1);
  CHECK(whole.rows.numerator.size() == 18);
  CHECK(whole.rows.denominator.size() == 18);
  for (const BalanceRow& row : whole.rows.numerator) CHECK(row.weight == 1.0);
  CHECK(whole.counters.clamped == 0);
}

TEST_CASE("theory's c never fails a walk, and hardly moves its coins") {
  const auto owned = make_stream({.tokens = 300, .d = 64, .dv = 8, .query_size = 4});
  Asked asked;
  asked.c = word_of("theory");
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Run result = run(owned->stream, 290, asked, seed);
    CHECK(result.counters.clamped == 0);
    CHECK(derived_real(result.derived, "max_abs_p_minus_half") < 0.05);
    CHECK(derived_real(result.derived, "c") == doctest::Approx(30.0 * std::log(300.0 / 0.01)));
  }
}

TEST_CASE("a soft-cap is told as a kernel that is not the model's; a sliding window is refused") {
  for (const double softcap : {0.0, 5.0}) {
    const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2, .softcap = softcap});
    const Derived derived = run(owned->stream, 20, {}, 1).derived;
    bool found = false;
    for (const auto& [name, value] : derived) {
      if (name != "kernel_mismatch") continue;
      found = true;
      CHECK(std::get<bool>(value) == (softcap > 0.0));
    }
    CHECK(found);
  }
  StreamShape shape = make_stream({.tokens = 30, .d = 4, .dv = 2})->stream.shape;
  shape.window = 29;
  for (const char* id : {"softmax_balance", "balancekv"}) {
    Given given = {{"T", count_of(1)}};
    if (std::string(id) == "balancekv") given.emplace_back("t", count_of(4));
    shape.window = 29;
    CHECK(skip_of(id, shape, 20, given).find("sliding window") != std::string::npos);
    shape.window = 30;  // as long as the stream: nothing is forgotten
    CHECK(skip_of(id, shape, 20, given).empty());
  }
}

TEST_CASE("zero values and a prompt without a middle are handled") {
  const auto zeros = make_stream({.tokens = 30, .d = 4, .dv = 2, .kind = StreamKind::kZeroValues});
  const Run result = run(zeros->stream, 20, {}, 1);
  CHECK(result.rows.denominator.size() <= 10);
  CHECK(!result.rows.denominator.empty());
  const auto owned = make_stream({.tokens = 30, .d = 4, .dv = 2});
  Asked asked;
  asked.sinks = 15;
  asked.recent = 10;
  CHECK(run(owned->stream, 20, asked, 1).rows.exact.size() == 21);
}

}  // namespace softmax_balance_test
}  // namespace kvbench::test
