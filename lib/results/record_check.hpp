// Whether a line of a journal is a record of the cell whose id it has.
#pragma once

#include "json/json.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// A status that a cell can have, the cell's own key, and numbers where a record has numbers: what
// is missing counts as null, since later versions write more. Errors other than divergences and
// distances by cosine are not below 0.
bool is_record_of(const Json& record, const Plan& plan, const PlannedCell& cell);

}  // namespace kvbench
