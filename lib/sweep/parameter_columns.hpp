// The parameters of one thing that a sweep names, an algorithm or a codec, each a value or an axis.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"
#include "parameters/parameters.hpp"
#include "sweep/axis.hpp"

namespace kvbench {

// Whose parameters these are; all must live as long.
struct ParameterOwner {
  const std::string& id;
  const std::vector<Parameter>& parameters;
  const std::vector<ExactlyOneOf>& exactly_one_of;
  std::string_view for_less_memory = {};  // AlgorithmFacts::for_less_memory
};

// One column of the cross product, in the order of the table.
struct ParameterColumn {
  const Parameter* parameter;
  Axis axis;
};

// The columns of the parameters that apply, defaults filled in; none after an error. `params` is an
// object, which may have the keys of `others` besides.
std::optional<std::vector<ParameterColumn>> read_columns(const nlohmann::json& params,
                                                         const ParameterOwner& owner,
                                                         const std::vector<std::string>& others,
                                                         const std::string& pointer,
                                                         ErrorList& errors);

// As a sweep file has them: values, and axes as lists.
nlohmann::json resolved_columns(const std::vector<ParameterColumn>& columns);

// Number of points of the cross product, and point `i` of it, the last axis fastest.
Index points_of(const std::vector<std::pair<std::string, std::vector<Value>>>& axes);
// A parameter of `table` that came after results were written is left out at its default.
Params point_of(const std::vector<std::pair<std::string, std::vector<Value>>>& axes,
                const std::vector<Parameter>& table, Index i);

// The default value as check_value leaves it.
Value default_of(const Parameter& parameter);

}  // namespace kvbench
