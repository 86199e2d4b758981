#include "statistical/false_alarm.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

namespace kvbench::test {
namespace {

std::int64_t environment_number(const char* name, std::int64_t fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoll(text, nullptr, 10);
}

}  // namespace

HonestAlarm::HonestAlarm(const std::string& name) {
  for (const Alarm& alarm : kAlarms) {
    if (name != alarm.name) continue;
    left_ = alarm.p_values;
    level_ = alarm.level > 0.0 ? alarm.level : alarm_level();
  }
  CHECK_MESSAGE(left_ > 0, "not in the table of false alarms: " << name);
}

HonestAlarm::~HonestAlarm() {
  CHECK_MESSAGE(left_ == 0, "the table of false alarms has p-values that nothing asks about");
}

void HonestAlarm::check(double p_value) {
  CHECK_MESSAGE(left_-- > 0, "more p-values than the table of false alarms allows");
  CHECK(p_value >= level_);
}

std::int64_t seed_count(std::int64_t base) {
  return base * environment_number("KVBENCH_TEST_SEEDS", 1);
}

std::uint32_t first_seed() {
  return static_cast<std::uint32_t>(environment_number("KVBENCH_TEST_FIRST_SEED", 1));
}

TEST_CASE("the false alarms of all statistical tests add up to at most one in a million") {
  double sum = 0.0;
  std::set<std::string> names;
  for (const Alarm& alarm : kAlarms) {
    CHECK(names.insert(alarm.name).second);
    sum += alarm.p_values * (alarm.level > 0.0 ? alarm.level : alarm_level());
  }
  CHECK(alarm_level() > 0.0);
  CHECK(sum <= kFalseAlarm * (1 + 1e-12));
}

}  // namespace kvbench::test
