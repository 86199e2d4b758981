// Where in a plan the records of a journal belong.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "sweep/plan.hpp"
#include "system/key_index.hpp"

namespace kvbench {

class PlanIndex {
 public:
  PlanIndex() = default;
  explicit PlanIndex(const Plan& plan);

  // By an id: a place in Plan::cells, or behind all of them one in Plan::layer_records. None if it
  // is of another plan.
  std::optional<std::size_t> find(std::string_view id) const;

 private:
  KeyIndex ids_;
};

}  // namespace kvbench
