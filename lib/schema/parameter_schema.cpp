#include "schema/parameter_schema.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "sweep/axis.hpp"

namespace kvbench {
namespace {

Json bounded(const char* type, const Parameter& parameter) {
  Json schema = {{"type", type}};
  schema[parameter.minimum_open ? "exclusiveMinimum" : "minimum"] = plain_number(parameter.minimum);
  schema["maximum"] = plain_number(parameter.maximum);
  return schema;
}

// One of several; alone if it is one.
Json one_of(std::vector<Json> schemas) {
  if (schemas.size() == 1) return std::move(schemas.front());
  return {{"anyOf", std::move(schemas)}};
}

Json list_of_unique(Json items) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", 1}, {"uniqueItems", true}};
}

void add_axis_forms(std::vector<Json>& schemas) {
  const Json forms = axis_form_schemas();
  for (const auto& form : forms.items()) {
    schemas.push_back({{"$ref", "#/$defs/" + form.key()}});
  }
}

const Json kMemoryFraction = {{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", 1}};

Json memory_form(Json fraction) {
  fraction["description"] = "part of the exact cache that may be held; budgets are solved for it";
  return object_schema({{"memory", std::move(fraction)}}, {"memory"});
}

const Parameter* find_parameter(const AlgorithmDescription& algorithm, const std::string& name) {
  for (const Parameter& parameter : algorithm.parameters) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

// Names of an alternative that have no default.
std::vector<std::string> needed(const AlgorithmDescription& algorithm,
                                const std::vector<std::string>& alternative) {
  std::vector<std::string> names;
  for (const std::string& name : alternative) {
    const Parameter* parameter = find_parameter(algorithm, name);
    if (parameter != nullptr && !parameter->default_value) names.push_back(name);
  }
  return names;
}

std::set<std::string> names_in_choice(const AlgorithmDescription& algorithm) {
  std::set<std::string> names;
  for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
    for (const auto& alternative : exclusive.alternatives) {
      names.insert(alternative.begin(), alternative.end());
    }
  }
  return names;
}

// Parameters that must be given whatever else is.
std::vector<std::string> required_names(const AlgorithmDescription& algorithm) {
  const std::set<std::string> in_choice = names_in_choice(algorithm);
  std::vector<std::string> names;
  for (const Parameter& parameter : algorithm.parameters) {
    if (!parameter.default_value && in_choice.count(parameter.name) == 0) {
      names.push_back(parameter.name);
    }
  }
  return names;
}

// One alternative is whole and nothing of the others is given. In a sweep defaults complete it; a
// cell's key has all of it.
Json choice_schema(const AlgorithmDescription& algorithm, const ExactlyOneOf& exclusive,
                   bool axes) {
  std::vector<Json> alternatives;
  for (const auto& names : exclusive.alternatives) {
    Json schema = Json::object();
    const std::vector<std::string> required = axes ? needed(algorithm, names) : names;
    if (!required.empty()) schema["required"] = required;
    for (const auto& others : exclusive.alternatives) {
      for (const std::string& name : others) {
        if (std::find(names.begin(), names.end(), name) == names.end()) {
          schema["properties"][name] = false;
        }
      }
    }
    alternatives.push_back(std::move(schema));
  }
  return {{"anyOf", std::move(alternatives)}};
}

}  // namespace

Json plain_number(double value) {
  if (std::nearbyint(value) == value && std::fabs(value) <= 0x1p53) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

Json integer_schema(IntegerRange range) {
  return {{"type", "integer"},
          {"minimum", plain_number(range.minimum)},
          {"maximum", plain_number(range.maximum)}};
}

Json integers_schema(IntegerRange range, bool or_all) {
  std::vector<Json> schemas;
  if (or_all) schemas.push_back({{"const", "all"}});
  schemas.push_back(list_of_unique(integer_schema(range)));
  add_axis_forms(schemas);
  if (or_all) schemas.push_back(integer_schema(range));
  return one_of(std::move(schemas));
}

Json value_schema(const Parameter& parameter) {
  std::vector<Json> schemas;
  switch (parameter.kind) {
    case Parameter::Kind::kInteger:
      schemas.push_back(bounded("integer", parameter));
      break;
    case Parameter::Kind::kReal:
      schemas.push_back(bounded("number", parameter));
      break;
    case Parameter::Kind::kTokens:
      schemas.push_back(bounded("integer", parameter));
      schemas.push_back({{"type", "number"}, {"exclusiveMinimum", 0}, {"exclusiveMaximum", 1}});
      break;
    case Parameter::Kind::kChoice:
      break;
    case Parameter::Kind::kFlag:
      schemas.push_back({{"type", "boolean"}});
      break;
    case Parameter::Kind::kFile:
    case Parameter::Kind::kCalibration:
      schemas.push_back({{"type", "string"}, {"minLength", 1}});
      break;
    case Parameter::Kind::kText:
      schemas.push_back({{"type", "string"}});
      break;
  }
  if (!parameter.choices.empty()) schemas.push_back({{"enum", parameter.choices}});
  if (parameter.takes_memory) schemas.push_back(memory_form(kMemoryFraction));
  return one_of(std::move(schemas));
}

Json axis_schema(const Parameter& parameter) {
  std::vector<Json> schemas = {value_schema(parameter), list_of_unique(value_schema(parameter))};
  if (is_number(parameter.kind)) add_axis_forms(schemas);
  if (parameter.takes_memory) {
    std::vector<Json> axes = {list_of_unique(kMemoryFraction)};
    add_axis_forms(axes);
    schemas.push_back(memory_form(one_of(std::move(axes))));
  }
  return one_of(std::move(schemas));
}

Json axis_form_schemas() {
  const auto form = [](const char* name, const char* doc, Json items) {
    const std::size_t count = items.size();
    Json list = {{"type", "array"},
                 {"description", doc},
                 {"prefixItems", std::move(items)},
                 {"minItems", count},
                 {"maxItems", count}};
    return object_schema({{name, std::move(list)}}, {name});
  };
  const Json number = {{"type", "number"}};
  const Json positive = {{"type", "number"}, {"exclusiveMinimum", 0}};
  const Json exponent = integer_schema({-1022, 1023});
  Json forms;
  forms["range"] =
      form("range", "first, last, step; both ends included", Json::array({number, number, number}));
  forms["pow2"] = form("pow2", "powers of two, by their first and last exponent",
                       Json::array({exponent, exponent}));
  forms["logspace"] = form("logspace", "first, last, how many; at equal ratios",
                           Json::array({positive, positive, integer_schema({1, 1e7})}));
  return forms;
}

Json params_schema(const AlgorithmDescription& algorithm, bool axes) {
  Json properties = Json::object();
  const std::set<std::string> in_choice = names_in_choice(algorithm);
  std::vector<std::string> required;
  for (const Parameter& parameter : algorithm.parameters) {
    Json schema = {{"description", parameter.doc}};
    schema.update(axes ? axis_schema(parameter) : value_schema(parameter));
    if (axes && parameter.default_value) schema["default"] = value_json(*parameter.default_value);
    properties[parameter.name] = std::move(schema);
    const bool is_always_there = !parameter.is_later && in_choice.count(parameter.name) == 0;
    if (!axes && is_always_there) required.push_back(parameter.name);
  }
  if (axes) required = required_names(algorithm);
  Json schema = object_schema(std::move(properties), required);
  std::vector<Json> choices;
  for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
    choices.push_back(choice_schema(algorithm, exclusive, axes));
  }
  if (!choices.empty()) schema["allOf"] = std::move(choices);
  return schema;
}

bool may_lack_params(const AlgorithmDescription& algorithm) {
  const auto goes_without = [&](const ExactlyOneOf& exclusive) {
    return std::any_of(
        exclusive.alternatives.begin(), exclusive.alternatives.end(),
        [&](const std::vector<std::string>& names) { return needed(algorithm, names).empty(); });
  };
  return required_names(algorithm).empty() &&
         std::all_of(algorithm.exactly_one_of.begin(), algorithm.exactly_one_of.end(),
                     goes_without);
}

Json object_schema(Json properties, const std::vector<std::string>& required) {
  Json schema = {{"type", "object"}};
  if (!required.empty()) schema["required"] = required;
  schema["properties"] = std::move(properties);
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace kvbench
