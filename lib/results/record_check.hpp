// Whether a line of a journal is a record of the cell whose id it has.
#pragma once

#include "json/json.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// A status that a cell can have, the cell's own key, and numbers where a record has numbers: what
// is missing counts as null, since later versions write more. Errors below 0 are those that the
// table of metrics allows.
bool is_record_of(const Json& record, const Plan& plan, const PlannedCell& cell);

// Whether all members are numbers, null, or objects of such.
bool holds_numbers(const Json& value);
// The same, or null.
bool numbers_or_nothing(const Json& value);
// Whether a number in it is below 0.
bool is_negative(const Json& value);

}  // namespace kvbench
