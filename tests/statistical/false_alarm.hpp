// The false-alarm budget of a run: an honest program turns any statistical test red with
// probability below kFalseAlarm, all tests together. Every p-value that must not be small is drawn
// from the table below and held against its level; the levels sum to the budget (Bonferroni; Holm's
// procedure, whose first step this is, is red in the same runs).
//
// KVBENCH_TEST_SEEDS=k runs k times as many seeds; KVBENCH_TEST_FIRST_SEED=s starts at seed s.
#pragma once

#include <cstdint>
#include <string>

namespace kvbench::test {

inline constexpr double kFalseAlarm = 1e-6;

// Theorem 1's: red at 15 failures of 300 seeds, 29 of 1000, which a failure probability of 0.01
// reaches with probability 5.4e-7 and 6.4e-7.
inline constexpr double kTheoremLevel = 6.5e-7;

struct Alarm {
  const char* name;
  int p_values;
  double level = 0.0;  // level of each p-value; 0: an equal share of what the others leave
};

// All statistical tests with the number of p-values that each may ask about.
inline constexpr Alarm kAlarms[] = {
    {"I2 slots follow ||v||^2", 6},
    {"I2 slots are independent", 6},
    {"I3 numerator is unbiased with the exact variance", 8},
    {"I4 normaliser is unbiased with the exact variance", 4},
    {"I3 I4 on the shipped dump", 6},
    {"I6 samples are uniform on their cluster", 10},
    {"I6 samples are independent", 10},
    {"I8 Theorem 1", 1, kTheoremLevel},
    {"I14 walk martingale", 4},
    {"I15 walk on identical unit vectors", 7},
    {"I16 walk against fair signs", 4},
    {"I18 random sides are unbiased", 24},
    {"I20 the numerator's slope", 1},
    {"I20 error constant of merge-and-reduce", 6},
    {"I22 uniform sampling", 6},
    {"I22 uniform sampling, with replacement", 1},
    {"I22 halving by signs", 1},
    {"I22 few tokens, worked", 3},
    {"random first centre of kcenter", 1},
    {"means of cam's merged values", 3},
    {"sums over thinformer's tokens", 1},
    {"I23 BalanceKV wins its pairs with uniform", 1},
    {"I23 errors of an independent program", 18},
    {"I24 noise has its moments and law", 16},
    {"I24 Gumbel argmax is softmax", 3},
    {"sums over what magicpig reads", 12},
    {"sums over what vattention reads", 4},
    {"sums over what hyperattention reads", 2},
    {"sums over what kdeformer reads", 4},
    {"first pivot of wildcat", 1},
    {"features of performer", 5},
    {"turboquant's errors on the sphere", 8},
    {"turboquant's inner products", 4},
    {"qjl's inner products", 3},
    {"qjl's length", 1},
    {"polarquant's angles", 4},
};

// The level of a p-value that has none of its own.
constexpr double alarm_level() {
  double left = kFalseAlarm;
  int sharing = 0;
  for (const Alarm& alarm : kAlarms) {
    left -= alarm.p_values * alarm.level;
    if (alarm.level == 0.0) sharing += alarm.p_values;
  }
  return left / sharing;
}

// Holds p-values of honest draws against their level, and counts that there are as many as the
// table says.
class HonestAlarm {
 public:
  explicit HonestAlarm(const std::string& name);
  ~HonestAlarm();
  HonestAlarm(const HonestAlarm&) = delete;
  HonestAlarm& operator=(const HonestAlarm&) = delete;

  void check(double p_value);

 private:
  int left_ = 0;
  double level_ = 0.0;
};

// `base` seeds, times KVBENCH_TEST_SEEDS.
std::int64_t seed_count(std::int64_t base);
std::uint32_t first_seed();

}  // namespace kvbench::test
