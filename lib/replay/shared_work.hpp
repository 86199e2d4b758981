// Work that the cells of a group share: each piece computed once.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "replay/replay_cell.hpp"

namespace kvbench {

// A piece that throws CellError, or runs out of memory, fails the cells that name it, no others;
// any other exception is a bug and thrown as BugError. Pieces of a batched kind are computed
// together.
SharedResults compute_shared(const SharedContext& setting, const std::vector<ReplayCell>& cells);

// The pieces of the cells' work that gather something over the scored rows.
class GatheredRows {
 public:
  GatheredRows(const SharedContext& setting, const std::vector<ReplayCell>& cells);

  // A cell that fails, and why.
  using Failure = std::pair<std::size_t, std::string>;
  // Adds the next of the blocks that have all scored rows, ascending, to what pieces have gathered
  // in `results`; the cells of those that fail at it, as compute_shared's do, which then get no
  // more rows.
  std::vector<Failure> add(const RowBlock& block, SharedResults& results);

 private:
  struct Piece {
    SharedWork work;
    std::vector<std::size_t> cells;
  };

  SharedContext setting_;
  std::map<WorkKey, Piece> pieces_;
};

}  // namespace kvbench
