// Where the prompt of a sequence ends.
#pragma once

#include "core/matrix_view.hpp"

namespace kvbench {

// P, in tokens, if the sweep names none: the last min(256, max(1, floor(n/2))) of n tokens are
// decoded, or, if fewer rows have queries, those that have. `query_rows`: how many of the last
// rows have queries; with none there is nothing to go by and P is as if all had. 0 <= P < n.
Index default_prompt(Index tokens, Index query_rows);

}  // namespace kvbench
