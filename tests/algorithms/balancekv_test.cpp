// balancekv: cells, weights and buckets at every step, against hand-worked streams, bounds and the
// token-by-token rule.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "support/balance_rows.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace balancekv_test {

Given operator+(Given given, const Given& more) {
  given.insert(given.end(), more.begin(), more.end());
  return given;
}

Given tree(Index t, Index T) { return {{"t", count_of(t)}, {"T", count_of(T)}}; }

// Equal keys of norm 0 and values as given: a tiny c then gives tokens of a cell alternating pairs
// of opposite signs.
std::unique_ptr<OwnedStream> stream_of_values(const std::vector<double>& values) {
  Rows v;
  for (const double x : values) v.push_back({x});
  return stream_of(Rows(values.size(), {0.0}), v, {Rows(values.size(), {0.0})});
}

const Given kTiny = {{"c", number(1e-9)}, {"r", number(1.0)}, {"erase", word_of("off")}};

// Rows of one sum by their weight: how many of 1, 2, 4, ..
std::map<double, std::size_t> by_weight(const std::vector<BalanceRow>& rows) {
  std::map<double, std::size_t> out;
  for (const BalanceRow& row : rows) ++out[row.weight];
  return out;
}

using Cells = std::map<double, std::size_t>;

std::vector<BalanceRows> rows_at(const Stream& stream, Index prompt, const Given& given,
                                 std::uint32_t seed = 0) {
  std::vector<BalanceRows> out;
  for (const Sketch& sketch : sketches_of("balancekv", stream, prompt, given, seed)) {
    out.push_back(balance_rows(sketch));
  }
  return out;
}

TEST_CASE("balancekv, worked: the cells of t = 2, T = 2 over nine equal tokens") {
  const auto owned = stream_of_values(std::vector<double>(9, 0.75));
  const std::vector<Cells> expected = {
      {{1, 1}},         {{2, 1}},         {{1, 1}, {2, 1}},         {{4, 1}},
      {{1, 1}, {4, 1}}, {{2, 1}, {4, 1}}, {{1, 1}, {2, 1}, {4, 1}}, {{4, 2}},
      {{1, 1}, {4, 2}}};
  std::set<std::vector<Index>> seen;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<BalanceRows> rows = rows_at(owned->stream, 0, tree(2, 2) + kTiny, seed);
    REQUIRE(rows.size() == 9);
    for (std::size_t j = 0; j < 9; ++j) {
      CAPTURE(j);
      CHECK(by_weight(rows[j].numerator) == expected[j]);
      CHECK(by_weight(rows[j].denominator) == expected[j]);
      CHECK(rows[j].exact.empty());
    }
    // One of each four tokens stands for them.
    CHECK(rows[8].denominator[0].token / 4 == 0);
    CHECK(rows[8].denominator[1].token / 4 == 1);
    seen.insert(tokens_of(rows[8].denominator));
    seen.insert(tokens_of(rows[8].numerator));
  }
  CHECK(seen.size() > 8);  // 16 choices are possible
}

TEST_CASE("balancekv, worked: an odd batch of three keeps one of weight 2") {
  const auto owned = stream_of_values(std::vector<double>(7, 1.0));
  const std::vector<BalanceRows> rows = rows_at(owned->stream, 0, tree(3, 1) + kTiny);
  const std::vector<Cells> expected = {
      {{1, 1}}, {{1, 2}}, {{2, 1}}, {{1, 1}, {2, 1}}, {{1, 2}, {2, 1}}, {{2, 2}}, {{1, 1}, {2, 2}}};
  for (std::size_t j = 0; j < 7; ++j) CHECK(by_weight(rows[j].numerator) == expected[j]);
}

TEST_CASE("balancekv, worked: buckets count their own tokens; no value, no bucket") {
  // Norms 1, 3, 1.5, 0, 2, 0.5: buckets [1, 2) of tokens 0 and 2, [2, 4) of 1 and 4, [1/2, 1) of 5.
  const auto owned = stream_of_values({1, 3, 1.5, 0, 2, 0.5});
  bool empty_class = false;
  bool zero_kept = false;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const auto rows = rows_at(owned->stream, 0, tree(2, 1) + kTiny, seed);
    CHECK(rows[1].numerator == std::vector<BalanceRow>{{0, 1}, {1, 1}});
    CHECK(rows[1].denominator.size() == 1);
    CHECK(by_weight(rows[2].numerator) == Cells{{1, 1}, {2, 1}});
    CHECK(rows[2].numerator == rows[3].numerator);
    CHECK(by_weight(rows[4].numerator) == Cells{{2, 2}});
    CHECK(by_weight(rows[5].numerator) == Cells{{1, 1}, {2, 2}});
    for (const BalanceRow& row : rows[5].numerator) {
      CHECK(row.weight == (row.token == 5 ? 1.0 : 2.0));
      CHECK(row.token != 3);
    }
    CHECK(by_weight(rows[5].denominator) == Cells{{2, 3}});
    // One instance without buckets: pairs in order of arrival. Tokens 2 and 3 do not touch (the
    // value of 3 is zero): their coins are fair, and one class may be empty.
    const auto one =
        rows_at(owned->stream, 0, tree(2, 1) + kTiny + Given{{"buckets", Value{false}}}, seed);
    CHECK(by_weight(one[2].numerator) == Cells{{1, 1}, {2, 1}});
    CHECK(one[2].numerator.back() == BalanceRow{2, 1});
    const std::size_t of_middle = one[3].numerator.size() - 1;
    CHECK(of_middle <= 1);
    CHECK(by_weight(one[5].numerator) == Cells{{2, 2 + of_middle}});
    empty_class = empty_class || of_middle == 0;
    zero_kept = zero_kept || (of_middle == 1 && one[3].numerator.back().token == 3);
  }
  CHECK(empty_class);
  CHECK(zero_kept);
}

TEST_CASE("balancekv, worked: every second step of an equal batch fails under a tiny c") {
  const auto owned = stream_of_values(std::vector<double>(12, 1.0));
  const AlgorithmDescription& algorithm = algorithm_named("balancekv");
  const Params params = params_for(algorithm, tree(4, 1) + kTiny);
  Stepper stepper(owned->stream, 0, algorithm, params);
  for (Index j = 0; stepper.next(); ++j) {
    // Two failures per full batch and sum.
    CHECK(stepper.algorithm().counters().clamped == 4 * ((j + 1) / 4));
  }
}

TEST_CASE("balancekv, worked: buckets below the threshold are erased, then and later") {
  // n = 4, epsilon 0.8: epsilon / (2 n) = 0.1; e^(-r^2) = 1/2. Thresholds 0.05 v_max and, strictly,
  // 0.025 v_max. Norms 0.01 (bucket 2^-6 = 0.0156), 0.03 (2^-5 = 0.0313), 1, 0.02 (2^-5).
  const auto owned = stream_of_values({0.01, 0.03, 1.0, 0.02});
  const Given given =
      tree(10, 0) + Given{{"r", number(std::sqrt(std::log(2.0)))}, {"epsilon", number(0.8)}};
  const auto numerators = [&](const char* erase) {
    std::vector<std::vector<Index>> out;
    for (const BalanceRows& rows :
         rows_at(owned->stream, 0, given + Given{{"erase", word_of(erase)}})) {
      out.push_back(tokens_of(rows.numerator));
      CHECK(rows.denominator.size() == out.size());
    }
    return out;
  };
  using Sets = std::vector<std::vector<Index>>;
  CHECK(numerators("paper") == Sets{{0}, {0, 1}, {2}, {2}});
  CHECK(numerators("strict") == Sets{{0}, {0, 1}, {1, 2}, {1, 2, 3}});
  CHECK(numerators("off") == Sets{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}});
}

TEST_CASE("balancekv holds what the token-by-token rule holds at every step") {
  struct Option {
    Index t;
    Index T;
    const char* side;
    double c;  // 0: theory
    double r;  // part of the largest key norm; 0: oracle, -1: the median key norm
    bool buckets;
    const char* erase;
    double epsilon;
    Index sinks;
    Index recent;
  };
  const std::vector<Option> options = {{4, 3, "smaller", 0.0, 0.0, true, "paper", 0.1, 0, 0},
                                       {5, 2, "smaller", 1.0, -1.0, true, "off", 0.1, 3, 0},
                                       {8, 1, "exact_half", 0.3, -1.0, false, "paper", 0.1, 0, 6},
                                       {3, 4, "random", 2.0, 0.5, true, "strict", 5.0, 2, 5},
                                       {7, 2, "exact_half", 0.1, 0.3, true, "paper", 50.0, 0, 1},
                                       {2, 5, "smaller", 1e-3, 0.6, true, "paper", 20.0, 100, 0},
                                       {16, 2, "random", 0.5, -1.0, false, "strict", 50.0, 0, 100},
                                       {6, 0, "smaller", 1.0, 0.0, true, "paper", 80.0, 0, 0}};
  const std::vector<StreamSpec> specs = {
      {.tokens = 80, .d = 6, .dv = 3, .query_size = 0.5},
      {.tokens = 80,
       .d = 8,
       .dv = 2,
       .heads_per_kv = 2,
       .kind = StreamKind::kClustered,
       .query_size = 2},
      {.tokens = 80, .d = 4, .dv = 2, .kind = StreamKind::kSomeZeroValues}};
  std::uint32_t seed = 0;
  Index erased = 0;
  Index failed = 0;
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    // Norms over many powers of two.
    for (Index j = 0; j < spec.tokens; ++j) {
      const double size = std::ldexp(1.0, static_cast<int>((j * 7) % 11) - 8);
      for (Index k = 0; k < spec.dv; ++k) {
        owned->values[j * spec.dv + k] *= size;
      }
    }
    const Stream& stream = owned->stream;
    const double key_norm = largest_norm(stream.keys);
    double query_norm = 0.0;
    for (const ConstMatrix& head : stream.queries) {
      query_norm = std::max(query_norm, largest_norm(head));
    }
    for (const Option& option : options) {
      CAPTURE(option.t);
      CAPTURE(option.T);
      CAPTURE(std::string(option.side));
      NaiveBalanceKv rule;
      rule.t = option.t;
      rule.T = option.T;
      rule.epsilon = option.epsilon;
      rule.c = option.c > 0.0 ? Real{option.c} : 30 * std::log(80 / 0.01L);
      const double r = option.r < 0.0 ? median_norm(stream.keys) : option.r * key_norm;
      rule.r_key = option.r == 0.0 ? key_norm : r;
      rule.r_erase = option.r == 0.0 ? std::max(key_norm, query_norm) : r;
      rule.largest_value_norm = largest_norm(stream.values);
      const std::string side = option.side;
      rule.side = side == "smaller"  ? Side::kSmaller
                  : side == "random" ? Side::kRandom
                                     : Side::kExactHalf;
      rule.buckets = option.buckets;
      rule.erase = option.erase;
      rule.sinks = option.sinks;
      rule.recent = option.recent;
      rule.tokens = spec.tokens;
      rule.seed = ++seed;
      const std::vector<NaiveBalanceState> states = naive_balancekv(stream, rule);
      const Given given = tree(option.t, option.T) +
                          Given{{"side", word_of(side)},
                                {"c", option.c > 0.0 ? number(option.c) : word_of("theory")},
                                {"r", option.r == 0.0 ? word_of("oracle") : number(r)},
                                {"buckets", Value{option.buckets}},
                                {"erase", word_of(option.erase)},
                                {"epsilon", number(option.epsilon)},
                                {"sinks", count_of(option.sinks)},
                                {"recent", count_of(option.recent)}};
      const AlgorithmDescription& algorithm = algorithm_named("balancekv");
      const Params params = params_for(algorithm, given);
      for (const Index prompt : {0, 33}) {
        Stepper stepper(stream, prompt, algorithm, params, seed);
        while (stepper.next()) {
          CAPTURE(stepper.row());
          const NaiveBalanceState& state = states[stepper.row()];
          const BalanceRows rows = balance_rows(stepper.sketch());
          std::vector<BalanceRow> numerator;
          for (const auto& [i, bucket] : state.buckets) {
            const std::vector<BalanceRow> cells = rows_of(bucket);
            numerator.insert(numerator.end(), cells.begin(), cells.end());
          }
          std::sort(numerator.begin(), numerator.end());
          CHECK(rows.numerator == numerator);
          CHECK(rows.denominator == rows_of(state.denominator));
          CHECK(rows.exact == state.exact);
          CHECK(stepper.algorithm().counters().clamped == state.fail);
          erased += state.erased;
          failed += state.fail;
        }
      }
    }
  }
  CHECK(erased > 0);
  CHECK(failed > 0);
}

TEST_CASE(
    "the state at a row is that of the stream cut after it, n's part in epsilon handed over") {
  auto owned = make_stream({.tokens = 60, .d = 4, .dv = 3});
  for (Index j = 0; j < 60;
       ++j) {  // the largest is the first that is not a sink; others span buckets
    const double size = j == 3 ? 100.0 : std::ldexp(1.0, static_cast<int>((j * 5) % 9) - 7);
    for (Index k = 0; k < 3; ++k) owned->values[3 * j + k] *= size;
  }
  const double r = median_norm(owned->stream.keys);
  bool erases = false;
  for (const bool buckets : {true, false}) {
    for (const char* side : {"smaller", "random", "exact_half"}) {
      const auto given = [&](double epsilon, const char* erase) {
        return tree(5, 2) + Given{{"side", word_of(side)},
                                  {"c", number(0.3)},
                                  {"r", number(r)},
                                  {"epsilon", number(epsilon)},
                                  {"buckets", Value{buckets}},
                                  {"erase", word_of(erase)},
                                  {"sinks", count_of(3)},
                                  {"recent", count_of(4)}};
      };
      const std::vector<BalanceRows> whole = rows_at(owned->stream, 10, given(1.5, "paper"), 8);
      erases = erases || whole.back().numerator !=
                             rows_at(owned->stream, 10, given(1.5, "off"), 8).back().numerator;
      for (const Index row : {10, 11, 24, 25, 40, 58}) {
        CAPTURE(row);
        const auto cut = truncated(owned->stream, row + 1);
        const double epsilon = 1.5 * static_cast<double>(row + 1) / 60.0;
        const BalanceRows now = rows_at(cut->stream, 10, given(epsilon, "paper"), 8).back();
        const BalanceRows& then = whole[row - 10];
        CHECK(now.numerator == then.numerator);
        CHECK(now.denominator == then.denominator);
        CHECK(now.exact == then.exact);
      }
    }
  }
  CHECK(erases);
}

}  // namespace balancekv_test
}  // namespace kvbench::test
