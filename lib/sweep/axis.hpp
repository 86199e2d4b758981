// One parameter of a sweep entry: a value or an axis of values.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/parameters.hpp"
#include "sweep/faults.hpp"

namespace kvbench {

struct AxisValue {
  Value value;
  std::string pointer;  // of the element of a list, else of the whole axis
};

struct Axis {
  std::vector<AxisValue> values;  // checked against the table, all different
  bool single = false;            // a value was given, no axis
};

// Expands `given`: a value, a list, {"range": [first, last, step]}, {"pow2": [lo, hi]} or
// {"logspace": [lo, hi, count]}. Values that a form computes are rounded to 12 significant digits,
// so that they are the numbers a person would list and the same on every machine. Faults go to
// `faults` at or below `pointer`; none is returned if there was one.
std::optional<Axis> expand_axis(const nlohmann::json& given, const Parameter& parameter,
                                const std::string& pointer, Faults& faults);

// A JSON value as a parameter value; none for null, lists and objects.
std::optional<Value> to_value(const nlohmann::json& given);
nlohmann::json value_json(const Value& value);

}  // namespace kvbench
