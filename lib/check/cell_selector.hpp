// Which cells a bound speaks of.
#pragma once

#include <string>
#include <vector>

#include "json/pointer.hpp"
#include "results/cell_field.hpp"

namespace kvbench {

// Every condition must hold, and a condition holds for any of its values. Numbers compare by value.
struct CellSelector {
  struct Condition {
    CellField field;
    std::vector<Json> any_of;

    bool holds(const Json& cell) const;
  };
  std::vector<Condition> conditions;

  bool matches(const Json& cell) const;
};

// Reads {"algorithm": "uniform", "layer": [0, 1], "params.T": 2}, `params` also as an object.
CellSelector read_selector(const nlohmann::json& given, const std::string& pointer,
                           ErrorList& errors);

// "algorithm = uniform, layer = 0 or 1".
std::string describe(const CellSelector::Condition& condition);
std::string describe(const CellSelector& selector);

}  // namespace kvbench
