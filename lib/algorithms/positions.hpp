// Where held tokens stand when they are attended to.
#pragma once

#include "algorithms/budget.hpp"

namespace kvbench {

inline Parameter positions_parameter() {
  return choice_parameter("positions", {"original"},
                          "positions of held tokens: those of the sequence");
}

}  // namespace kvbench
