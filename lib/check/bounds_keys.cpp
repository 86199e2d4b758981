#include "check/bounds_keys.hpp"

#include <stdexcept>

namespace kvbench {

const std::array<BoundKind, 5>& bound_kinds() {
  static const std::array<BoundKind, 5> kinds = {
      BoundKind{{"limit"}, {}, {"failure_rate"}},
      BoundKind{{"than"}, {"paired_by"}, {"test", "median_ratio_at_most"}},
      BoundKind{{"baseline"}, {"relative_tolerance"}, {"absolute_tolerance"}},
      BoundKind{{"at_most", "at_least"}, {}, {}}, BoundKind{{"below_trivial"}, {}, {}}};
  return kinds;
}

const std::vector<std::string>& general_bound_keys() {
  static const std::vector<std::string> keys = {"name", "where", "metric", "false_alarm"};
  return keys;
}

std::vector<std::string> bound_keys() {
  std::vector<std::string> all = general_bound_keys();
  for (const BoundKind& kind : bound_kinds()) {
    for (const auto* keys : {&kind.choosing, &kind.needed, &kind.others}) {
      all.insert(all.end(), keys->begin(), keys->end());
    }
  }
  return all;
}

const std::vector<BoundNumber>& bound_numbers() {
  static const std::vector<BoundNumber> numbers = {{"failure_rate", 0.0, 1.0, true},
                                                   {"false_alarm", 0.0, 1.0, true},
                                                   {"median_ratio_at_most", 0.0, HUGE_VAL, true},
                                                   {"relative_tolerance", 0.0},
                                                   {"absolute_tolerance", 0.0},
                                                   {"below_trivial", 0.0, HUGE_VAL, true},
                                                   {"at_least"},
                                                   {"at_most"}};
  return numbers;
}

const BoundNumber& bound_number(const std::string& key) {
  for (const BoundNumber& number : bound_numbers()) {
    if (number.key == key) return number;
  }
  throw std::logic_error("no number " + key + " in a bound");
}

}  // namespace kvbench
