// JSON Schema of parameters, from the tables that check them.
#pragma once

#include <vector>

#include "algorithms/algorithm.hpp"
#include "json/json.hpp"
#include "sweep/sweep_keys.hpp"

namespace kvbench {

inline constexpr const char* kSchemaDialect = "https://json-schema.org/draft/2020-12/schema";

// A number as people write it: integral doubles without a point.
Json plain_number(double value);

Json integer_schema(IntegerRange range);
// A list of different integers or an axis form of them; also "all" if `or_all`.
Json integers_schema(IntegerRange range, bool or_all);

// One value of a parameter, as check_value takes it.
Json value_schema(const Parameter& parameter);
// A value or an axis of values, as expand_axis takes it.
Json axis_schema(const Parameter& parameter);
// The axis forms that axis_schema refers to, by name, for `$defs`.
Json axis_form_schemas();

// `params` of a sweep entry (`axes`) or of a cell's key: which names may be combined follows
// from the exclusive alternatives.
Json params_schema(const AlgorithmDescription& algorithm, bool axes);
// Whether an entry may do without `params`.
bool may_lack_params(const AlgorithmDescription& algorithm);

// An object with these properties and no others, those of `required` there.
Json object_schema(Json properties, const std::vector<std::string>& required = {});

}  // namespace kvbench
