// I18: with side random, merge-and-reduce keeps every sum in expectation: E sum of 2^l f(token)
// over all cells is the sum of f over all tokens, whatever the walk does.
#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "statistical/false_alarm.hpp"
#include "support/balance_rows.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"

namespace kvbench::test {
namespace merge_reduce_test {

constexpr std::int64_t kRuns = 4000;
constexpr Index kTokens = 53;

double column(Index token, int which) {
  return which == 0 ? 1.0 : 1.5 + std::cos(static_cast<double>((which + 1) * (token + 1)));
}

enum class Loss { kNone, kTopLevelHalved };

// p-values of the weighted totals of columns 0 to 2, for the rows that stand for one sum.
std::vector<double> totals_p(const Stream& stream, const Given& given, bool numerator,
                             Index last_row, std::int64_t runs, Loss loss = Loss::kNone) {
  const AlgorithmDescription& algorithm = algorithm_named("balancekv");
  const Params params = params_for(algorithm, given);
  const std::int64_t levels = std::get<std::int64_t>(params.at("T"));
  std::vector<std::vector<double>> totals(3);
  for (std::int64_t run = 0; run < runs; ++run) {
    Stepper stepper(stream, last_row, algorithm, params,
                    first_seed() + static_cast<std::uint32_t>(run));
    stepper.next();
    const BalanceRows rows = balance_rows(stepper.sketch());
    for (std::size_t which = 0; which < 3; ++which) {
      double total = 0.0;
      for (const BalanceRow& row : numerator ? rows.numerator : rows.denominator) {
        double weight = row.weight;
        if (loss == Loss::kTopLevelHalved && weight == std::pow(2.0, levels)) weight *= 0.5;
        total += weight * column(row.token, static_cast<int>(which));
      }
      totals[which].push_back(total);
    }
  }
  std::vector<double> out;
  for (std::size_t which = 0; which < 3; ++which) {
    double expected = 0.0;
    for (Index j = 0; j <= last_row; ++j) expected += column(j, static_cast<int>(which));
    out.push_back(normal_two_sided(mean_z(totals[which], expected)));
  }
  return out;
}

Given tree(const char* side, double c) {
  return {{"t", count_of(6)}, {"T", count_of(3)},        {"c", number(c)},
          {"r", number(1.5)}, {"erase", word_of("off")}, {"side", word_of(side)}};
}

double least(const std::vector<double>& p) { return *std::min_element(p.begin(), p.end()); }

TEST_CASE("I18: random sides keep every sum in expectation, at two stream times") {
  HonestAlarm alarm("I18 random sides are unbiased");
  const auto owned = make_stream({.tokens = kTokens, .d = 4, .dv = 3, .seed = 4});
  for (const double c : {0.2, 5.0}) {
    for (const Index last_row : {Index{40}, kTokens - 1}) {
      for (const bool numerator : {false, true}) {
        CAPTURE(c);
        CAPTURE(last_row);
        CAPTURE(numerator);
        for (const double p :
             totals_p(owned->stream, tree("random", c), numerator, last_row, seed_count(kRuns))) {
          alarm.check(p);
        }
      }
    }
  }
}

TEST_CASE("I18 turns red on the smaller side, on exact halves of odd cells and on lost weights") {
  const auto owned = make_stream({.tokens = kTokens, .d = 4, .dv = 3, .seed = 4});
  CHECK(least(totals_p(owned->stream, tree("smaller", 5.0), false, kTokens - 1, kRuns)) <
        alarm_level());
  CHECK(least(totals_p(owned->stream, tree("smaller", 5.0), true, kTokens - 1, kRuns)) <
        alarm_level());
  Given odd = tree("exact_half", 5.0);
  odd.front().second = count_of(5);
  CHECK(least(totals_p(owned->stream, odd, false, kTokens - 1, kRuns)) < alarm_level());
  for (const bool numerator : {false, true}) {
    CHECK(least(totals_p(owned->stream, tree("random", 5.0), numerator, kTokens - 1, kRuns,
                         Loss::kTopLevelHalved)) < alarm_level());
  }
}

}  // namespace merge_reduce_test
}  // namespace kvbench::test
