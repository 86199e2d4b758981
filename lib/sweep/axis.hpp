// One parameter of a sweep entry: a value or an axis of values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"
#include "parameters/parameters.hpp"

namespace kvbench {

// A sweep with more values than this on the axes of its algorithms together is an error: they are
// in memory.
inline constexpr Index kMaxAxisValues = 1'000'000;

struct Axis {
  std::vector<Value> values;  // checked against the table, all different
  std::string pointer;        // its place in the file
  bool single = false;        // a value was given, no axis
  bool listed = false;        // a list was given: its elements have places of their own

  // JSON pointer of value i.
  std::string place(std::size_t i) const;
};

// Expands `given`: a value, a list, {"range": [first, last, step]}, {"pow2": [lo, hi]} or
// {"logspace": [lo, hi, count]}; of a parameter that takes it also {"memory": A}, A a number or an
// axis of numbers in (0, 1]. Values that a form computes are rounded to 12 significant digits,
// so that they are the numbers a person would list and the same on every machine. A list has every
// element with an error reported, a form its first value. Errors go to `errors` at or below
// `pointer`; nothing is returned if there was one.
std::optional<Axis> expand_axis(const nlohmann::json& given, const Parameter& parameter,
                                const std::string& pointer, ErrorList& errors);

// Whether it is {"memory": A}.
bool is_memory_form(const nlohmann::json& given);
// A JSON value as a parameter value; none for null, lists and objects.
std::optional<Value> to_value(const nlohmann::json& given);
// As a sweep and a cell's key have it: of {"memory": F} what was asked for, not what was solved.
nlohmann::json value_json(const Value& value);

}  // namespace kvbench
