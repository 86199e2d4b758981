// The keys of a bounds file and the ranges of their numbers: what reading refuses and what the JSON
// Schema says come from these tables.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace kvbench {

// Keys that make a bound one of its kind, and the keys that belong to that kind alone.
struct BoundKind {
  std::vector<std::string> choosing;  // one of them is given
  std::vector<std::string> needed;    // and these
  std::vector<std::string> others;
};
enum BoundKindIndex : std::size_t {
  kLimitKeys,
  kPairedKeys,
  kBaselineKeys,
  kRangeKeys,
  kTrivialKeys
};
const std::array<BoundKind, 5>& bound_kinds();

// Keys of every bound, of which `name` and `metric` must be there. `false_alarm` belongs to
// statistical ones: of kind kPairedKeys, or with `failure_rate`.
const std::vector<std::string>& general_bound_keys();
std::vector<std::string> bound_keys();

// A number of a bound: in [low, high], without the ends if `open`.
struct BoundNumber {
  std::string key;
  double low = -HUGE_VAL;
  double high = HUGE_VAL;
  bool open = false;
};
const std::vector<BoundNumber>& bound_numbers();
const BoundNumber& bound_number(const std::string& key);

}  // namespace kvbench
