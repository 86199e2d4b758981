#include "results/plan_index.hpp"

namespace kvbench {

PlanIndex::PlanIndex(const Plan& plan) {
  for (const PlannedCell& cell : plan.cells) ids_.add(cell.id);
  for (const PlannedLayerRecord& layer : plan.layer_records) {
    ids_.add(Key128::from_text(layer.id).value());
  }
}

std::optional<std::size_t> PlanIndex::find(std::string_view id) const {
  const auto key = Key128::from_text(id);
  return key ? ids_.find(*key) : std::nullopt;
}

}  // namespace kvbench
