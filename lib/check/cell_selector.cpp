#include "check/cell_selector.hpp"

#include <algorithm>

#include "algorithms/registry.hpp"  // results name algorithms by id, users by alias too
#include "json/document.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

std::optional<std::string> value_error(const std::string& field, const json& value) {
  switch (field_values(field)) {
    case FieldValues::kAny:
      return std::nullopt;
    case FieldValues::kNames:
      if (value.is_string()) return std::nullopt;
      return "must be a name in quotes, got " + shown(value);
    case FieldValues::kIntegers:
      if (value.is_number_integer() || (field == "seed" && value.is_null())) return std::nullopt;
      return "must be an integer, got " + shown(value);
  }
  return std::nullopt;
}

void add_condition(CellSelector& selector, const std::string& name, const json& value,
                   const std::string& pointer, ErrorList& errors) {
  const std::optional<CellField> field = cell_field(name);
  if (!field) {
    errors.add(pointer, unknown_field(name));
    return;
  }
  CellSelector::Condition condition{*field, {}};
  const bool is_list = value.is_array() && field->name != "rows";
  if (is_list && value.empty())
    errors.add(pointer, "must not be an empty list; no cell would match");
  for (std::size_t i = 0; i < (is_list ? value.size() : 1); ++i) {
    const json& one = is_list ? value[i] : value;
    if (const auto wrong = value_error(field->name, one)) {
      errors.add(is_list ? child(pointer, i) : pointer, *wrong);
    }
    const AlgorithmDescription* algorithm = field->name == "algorithm" && one.is_string()
                                                ? find_algorithm(one.get<std::string>())
                                                : nullptr;
    condition.any_of.push_back(algorithm == nullptr ? Json(one) : Json(algorithm->id));
  }
  selector.conditions.push_back(std::move(condition));
}

}  // namespace

bool CellSelector::Condition::holds(const Json& cell) const {
  const Json* value = value_at(cell, field.place);
  return value != nullptr && std::find(any_of.begin(), any_of.end(), *value) != any_of.end();
}

bool CellSelector::matches(const Json& cell) const {
  return std::all_of(conditions.begin(), conditions.end(),
                     [&](const Condition& condition) { return condition.holds(cell); });
}

CellSelector read_selector(const json& given, const std::string& pointer, ErrorList& errors) {
  CellSelector selector;
  if (!given.is_object()) {
    errors.add(pointer,
               "must be an object of fields and values, for example "
               "{\"algorithm\": \"uniform\", \"params.T\": 2}, got " +
                   shown(given));
    return selector;
  }
  for (const auto& [name, value] : given.items()) {
    if (name != "params" || !value.is_object()) {
      add_condition(selector, name, value, child(pointer, name), errors);
      continue;
    }
    for (const auto& [param, setting] : value.items()) {
      add_condition(selector, "params." + param, setting, child(child(pointer, name), param),
                    errors);
    }
  }
  return selector;
}

std::string describe(const CellSelector::Condition& condition) {
  std::string text = condition.field.name + " = ";
  for (std::size_t i = 0; i < condition.any_of.size(); ++i) {
    const Json& value = condition.any_of[i];
    text +=
        (i == 0 ? "" : " or ") + (value.is_string() ? value.get<std::string>() : to_line(value));
  }
  return text;
}

std::string describe(const CellSelector& selector) {
  std::string text;
  for (const CellSelector::Condition& condition : selector.conditions) {
    text += (text.empty() ? "" : ", ") + describe(condition);
  }
  return text;
}

}  // namespace kvbench
