// The records of whole layers that a plan's cells make.
#pragma once

#include "sweep/plan.hpp"

namespace kvbench {

// Fills plan.layer_records and those of its groups, whose cells must be complete.
void add_layer_records(Plan& plan);

}  // namespace kvbench
