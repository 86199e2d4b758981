// JSON Schema of parameters, from the tables that check them.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "sweep/sweep_keys.hpp"

namespace kvbench {

using SchemaJson = nlohmann::ordered_json;

inline constexpr const char* kSchemaDialect = "https://json-schema.org/draft/2020-12/schema";

// A number as people write it: integral doubles without a point.
SchemaJson plain_number(double value);

SchemaJson integer_schema(IntegerRange range);
// A list of different integers or an axis form of them; also "all" where `or_all`.
SchemaJson integers_schema(IntegerRange range, bool or_all);

// One value of a parameter, as check_value takes it.
SchemaJson value_schema(const Parameter& parameter);
// A value or an axis of values, as expand_axis takes it.
SchemaJson axis_schema(const Parameter& parameter);
// The axis forms that axis_schema refers to, by name, for `$defs`.
SchemaJson axis_form_schemas();

// `params` of a sweep entry (`axes`) or of a cell's key: which names may stand together follows
// from the exclusive alternatives.
SchemaJson params_schema(const AlgorithmDescription& algorithm, bool axes);
// Whether an entry may do without `params`.
bool may_lack_params(const AlgorithmDescription& algorithm);

// An object with these properties and no others, those of `required` there.
SchemaJson object_schema(SchemaJson properties, const std::vector<std::string>& required = {});

}  // namespace kvbench
