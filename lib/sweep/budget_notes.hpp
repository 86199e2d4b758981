// Where a sweep asks for budgets that leave nothing out.
#pragma once

#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// A sentence for each label with a budget of more tokens than a group has. A budget that is solved
// from a memory or a part of the tokens never has more.
std::vector<std::string> notes_of_budgets(const Plan& plan);

}  // namespace kvbench
