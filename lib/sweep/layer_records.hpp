// The records of whole layers that a plan's cells make.
#pragma once

#include <optional>
#include <string>

#include "json/json.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Fills plan.layer_records and those of its groups, whose cells must be complete.
void add_layer_records(Plan& plan);

// The key of its cells without `kv_head`.
nlohmann::json layer_record_key(const Plan& plan, const PlannedLayerRecord& record);
// algorithm/label/sequence/layer
std::string layer_record_path(const Plan& plan, const PlannedLayerRecord& record);

// Why a record will not be computed, because a cell of it is skipped; none if it will.
std::optional<std::string> layer_skip_reason(const Plan& plan, const PlannedLayerRecord& record);

}  // namespace kvbench
