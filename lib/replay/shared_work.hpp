// What the cells of a group share: each piece of work computed once.
#pragma once

#include <vector>

#include "algorithms/algorithm.hpp"
#include "replay/replay.hpp"

namespace kvbench {

// A piece that throws CellError, or runs out of memory, fails the cells that name it, no others;
// any other exception is a bug and thrown as BugError. Pieces of a batched kind are computed
// together.
SharedResults compute_shared(const SharedContext& setting, const std::vector<ReplayCell>& cells);

}  // namespace kvbench
