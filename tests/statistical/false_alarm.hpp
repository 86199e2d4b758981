// The false-alarm budget of a run: an honest program turns any statistical test red with
// probability below kFalseAlarm, all tests together. Every p-value that must not be small is drawn
// from the table below and tested at kFalseAlarm / (their number) (Bonferroni).
//
// KVBENCH_TEST_SEEDS=k runs k times as many seeds; KVBENCH_TEST_FIRST_SEED=s starts at seed s.
#pragma once

#include <cstdint>
#include <string>

namespace kvbench::test {

inline constexpr double kFalseAlarm = 1e-6;

struct Alarm {
  const char* name;
  int p_values;
};

// All statistical tests with the number of p-values that each may ask about.
inline constexpr Alarm kAlarms[] = {
    {"I2 slots follow ||v||^2", 10},
    {"I2 slots are independent", 10},
    {"I3 numerator is unbiased with the exact variance", 16},
    {"I4 normaliser is unbiased with the exact variance", 8},
    {"I6 samples are uniform on their cluster", 12},
    {"I6 samples are independent", 12},
    {"I8 Theorem 1", 3},
    {"I3 I4 on the shipped dump", 8},
    {"I22 uniform sampling", 6},
    {"I22 uniform sampling, with replacement", 1},
    {"error falls as the root of the sample size", 2},
};

constexpr int alarm_count() {
  int sum = 0;
  for (const Alarm& alarm : kAlarms) sum += alarm.p_values;
  return sum;
}

// The level of one p-value.
constexpr double alarm_level() { return kFalseAlarm / alarm_count(); }

// Holds p-values of honest draws against the level, and counts that they are in the table.
class HonestAlarm {
 public:
  explicit HonestAlarm(const std::string& name);
  void check(double p_value);

 private:
  int left_ = 0;
};

// `base` seeds, times KVBENCH_TEST_SEEDS.
std::int64_t seed_count(std::int64_t base);
std::uint32_t first_seed();

}  // namespace kvbench::test
