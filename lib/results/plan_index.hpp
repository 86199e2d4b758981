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

  // The place of an id in Plan::cells, or behind all of them in Plan::layer_records; nullopt for an
  // id of another plan.
  std::optional<std::size_t> find(std::string_view id) const;

 private:
  KeyIndex ids_;
};

}  // namespace kvbench
