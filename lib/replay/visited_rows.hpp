// Rows whose logits a replay computes, scored or not.
#pragma once

#include <vector>

#include "algorithms/algorithm.hpp"

namespace kvbench {

// Whether cells with these needs see the logits of every decode row. (Algorithms that score kept
// tokens alone see to the unscored rows by themselves.)
bool visits_every_row(const Needs& needs);

// The scored rows and, with `every_row`, every decode row that has a query. Ascending.
std::vector<Index> visited_rows(const StreamShape& shape, Index prompt,
                                const std::vector<Index>& scored, bool every_row);

}  // namespace kvbench
