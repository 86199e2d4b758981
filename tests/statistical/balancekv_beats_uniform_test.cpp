// I23: on the shipped dump, BalanceKV as evaluated errs less than uniform sampling of the same
// size, paired by layer, head, T and seed, and by as much as an independent float64 program found.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "dump/dump.hpp"
#include "statistical/false_alarm.hpp"
#include "support/given.hpp"
#include "support/probability.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace balancekv_beats_uniform_test {

constexpr Index kPrompt = 1792;
constexpr std::int64_t kSeeds = 30;

// Mean relative l2 errors of all decode rows, one per seed.
struct Errors {
  std::vector<double> balanced;
  std::vector<double> uniform;
};

double mean_of(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

// `gamma` 4 is the method's; a negative one is the walk with its sign turned. By T.
std::map<Index, Errors> errors(const Stream& stream, const std::vector<Index>& levels, double gamma,
                               std::int64_t seeds) {
  const AlgorithmDescription& prefill = algorithm_named("balancekv_prefill");
  const AlgorithmDescription& uniform = algorithm_named("uniform");
  std::vector<ReplayCell> cells;
  for (const Index T : levels) {
    Params tuned = params_for(prefill, {{"T", count_of(T)}});
    tuned.set("gamma", number(gamma));
    const Params plain = params_for(uniform, {{"T", count_of(T)}});
    for (std::int64_t seed = 0; seed < seeds; ++seed) {
      const auto number_of_seed = first_seed() + static_cast<std::uint32_t>(seed);
      cells.push_back({&prefill, tuned, number_of_seed});
      cells.push_back({&uniform, plain, number_of_seed});
    }
  }
  ReplaySetting setting;
  setting.prompt = kPrompt;
  setting.rows = decode_rows(stream, kPrompt);
  std::vector<double> found(cells.size(), 0.0);
  replay(stream, setting, cells, cpu_kernels(), [&](std::size_t cell, CellResult&& result) {
    if (!result.failed) found[cell] = *result.metrics["errors.relative_l2.mean"];
  });
  std::map<Index, Errors> out;
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    REQUIRE(found[cell] > 0.0);
    Errors& of = out[std::get<std::int64_t>(cells[cell].params->at("T"))];
    (cell % 2 == 0 ? of.balanced : of.uniform).push_back(found[cell]);
  }
  return out;
}

struct Pairs {
  std::int64_t won = 0;
  std::int64_t all = 0;
};

Pairs pairs_of(const std::vector<Errors>& all) {
  Pairs out;
  for (const Errors& one : all) {
    for (std::size_t i = 0; i < one.balanced.size(); ++i) {
      out.won += one.balanced[i] < one.uniform[i] ? 1 : 0;
      ++out.all;
    }
  }
  return out;
}

// P[as many pairs won, or more] if either of a pair were as good.
double sign_p(const Pairs& pairs) { return binomial_tail(pairs.won, pairs.all, 0.5); }

// P[so few pairs won, or fewer] if 85 of 100 were won: 94 of 100 are, and at 85 the sign test above
// still is below 1e-12 for all but one run in a billion.
double wins_p(const Pairs& pairs) { return binomial_tail(pairs.all - pairs.won, pairs.all, 0.15); }

// ln(balanced / uniform), pair by pair.
std::vector<double> log_ratios(const Errors& errors) {
  std::vector<double> out;
  for (std::size_t i = 0; i < errors.balanced.size(); ++i) {
    out.push_back(std::log(errors.balanced[i] / errors.uniform[i]));
  }
  return out;
}

std::unique_ptr<StreamData> stream_of_dump(int layer, int kv_head) {
  const Dump dump(std::string(KVBENCH_SOURCE_DIR) + "/data/smollm2-constitution.h5");
  return dump.read_stream(dump.info().sequences.front().name, layer, kv_head);
}

// A mean over kSeeds seeds against a mean of 30 with its standard deviation, both printed to
// `digit`: Welch's test with 29 degrees of freedom, the fewest it can have, less what was rounded
// off.
double mean_p(const std::vector<double>& found, double expected, double deviation, double digit) {
  const double mean = mean_of(found);
  double variance = 0.0;
  for (const double x : found) variance += (x - mean) * (x - mean);
  const double n = static_cast<double>(found.size());
  variance /= n - 1.0;
  const double other = deviation + 0.5 * digit;
  const double off = std::max(0.0, std::fabs(mean - expected) - 0.5 * digit);
  return student_two_sided(off / std::sqrt(variance / n + other * other / 30.0), 29.0);
}

TEST_CASE("I23: BalanceKV as evaluated beats uniform sampling of the same size, pair by pair") {
  HonestAlarm alarm("I23 BalanceKV wins its pairs with uniform");
  std::vector<Errors> all;
  for (const int layer : {0, 1, 15}) {
    for (const int head : {0, 1, 2}) {
      const auto data = stream_of_dump(layer, head);
      all.push_back(errors(data->stream, {1}, 4.0, seed_count(kSeeds)).at(1));
      const Errors& now = all.back();
      const std::vector<double> ratios = log_ratios(now);
      MESSAGE("layer " << layer << ", KV head " << head << ": "
                       << mean_of(now.balanced) / mean_of(now.uniform)
                       << " of the mean error of uniform, geometric mean of pairs "
                       << std::exp(mean_of(ratios)) << ", z " << mean_z(ratios, 0.0));
    }
  }
  const Pairs pairs = pairs_of(all);
  MESSAGE("won " << pairs.won << " of " << pairs.all << " pairs, sign test " << sign_p(pairs));
  alarm.check(wins_p(pairs));
  CHECK(sign_p(pairs) < 1e-12);
}

TEST_CASE("I23 turns red on a walk whose sign is turned, and on uniform against itself") {
  std::vector<Errors> turned;
  std::vector<Errors> itself;
  for (const int layer : {0, 1, 15}) {
    const auto data = stream_of_dump(layer, 0);
    turned.push_back(errors(data->stream, {1}, -4.0, kSeeds).at(1));
    Errors same = turned.back();
    same.balanced = same.uniform;
    std::rotate(same.balanced.begin(), same.balanced.begin() + 1, same.balanced.end());
    itself.push_back(same);
  }
  for (const Pairs& pairs : {pairs_of(turned), pairs_of(itself)}) {
    CHECK(wins_p(pairs) < alarm_level());
    CHECK(sign_p(pairs) > 1e-12);
  }
}

struct Printed {
  double mean;
  double deviation;
  double digit;
};

// Mean and standard deviation of the mean relative l2 error over 30 seeds, KV head 0, T = 1, 2, 4,
// as an independent float64 program printed them.
struct Row {
  int layer;
  Printed uniform[3];
  Printed balanced[3];
};
const Row kTable[] = {{0,
                       {{0.075, 0.017, 1e-3}, {0.141, 0.046, 1e-3}, {0.28, 0.06, 1e-2}},
                       {{0.039, 0.003, 1e-3}, {0.067, 0.005, 1e-3}, {0.161, 0.012, 1e-3}}},
                      {1,
                       {{0.051, 0.008, 1e-3}, {0.089, 0.018, 1e-3}, {0.18, 0.04, 1e-2}},
                       {{0.042, 0.003, 1e-3}, {0.072, 0.010, 1e-3}, {0.161, 0.025, 1e-3}}},
                      {15,
                       {{0.042, 0.003, 1e-3}, {0.072, 0.004, 1e-3}, {0.136, 0.018, 1e-3}},
                       {{0.034, 0.000, 1e-3}, {0.060, 0.003, 1e-3}, {0.126, 0.015, 1e-3}}}};
const Index kLevels[] = {1, 2, 4};

TEST_CASE("I23: errors of uniform and BalanceKV as evaluated are those of another program") {
  HonestAlarm alarm("I23 errors of an independent program");
  for (const Row& row : kTable) {
    const auto data = stream_of_dump(row.layer, 0);
    const auto found = errors(data->stream, {1, 2, 4}, 4.0, seed_count(kSeeds));
    for (std::size_t i = 0; i < 3; ++i) {
      const Errors& of = found.at(kLevels[i]);
      CAPTURE(row.layer);
      CAPTURE(kLevels[i]);
      CAPTURE(mean_of(of.uniform));
      CAPTURE(mean_of(of.balanced));
      const Printed& uniform = row.uniform[i];
      const Printed& balanced = row.balanced[i];
      alarm.check(mean_p(of.uniform, uniform.mean, uniform.deviation, uniform.digit));
      alarm.check(mean_p(of.balanced, balanced.mean, balanced.deviation, balanced.digit));
    }
  }
}

TEST_CASE("I23 against another program turns red where the walk's sign is turned") {
  for (const Row& row : kTable) {
    const auto data = stream_of_dump(row.layer, 0);
    const Errors turned = errors(data->stream, {1}, -4.0, kSeeds).at(1);
    const Printed& expected = row.balanced[0];
    CAPTURE(row.layer);
    CAPTURE(mean_of(turned.balanced));
    CHECK(mean_p(turned.balanced, expected.mean, expected.deviation, expected.digit) <
          alarm_level());
  }
}

}  // namespace balancekv_beats_uniform_test
}  // namespace kvbench::test
