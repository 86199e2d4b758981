// {"memory": F}: a budget, or a number of halvings, solved for the memory that it takes, from
// shapes alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "algorithms/algorithm.hpp"

namespace kvbench {

// The largest x in [first, last] with fits(x), none if there is none. Up to last - 1 `fits`
// must fail from `reach` + 1 above any x on at which it fails, so that with 0 it holds below some x
// and fails from there on; at `last` it may be either.
std::optional<Index> largest_that_fits(Index first, Index last,
                                       const std::function<bool(Index)>& fits, Index reach = 0);

// Whether a parameter is given as memory and not solved yet.
bool asks_for_memory(const Params& params);

// `params` with the largest budget, or the fewest halvings, of which the cell's memory.fraction
// (its peak at decode rows over the exact cache; `bytes` of the kept rows, empty: unquantised, with
// `element_bytes` per number) is at most the F that is asked for; or why there is none on this
// stream, to skip the cell with, and the least F that is reached with a budget that runs. `reach`:
// how many tokens further `bytes` may fall back to what it was. `skip`: why a cell does not run
// with these parameters; empty: what the algorithm says. `params` asks for memory, and what is
// given so takes it (Parameter::takes_memory).
std::variant<Params, std::string> solve_memory(
    const AlgorithmDescription& algorithm, const Params& params, const StreamShape& shape,
    Index prompt, int element_bytes, const std::function<Index(const KeptCounts&)>& bytes = {},
    Index reach = 0, const std::function<std::optional<std::string>(const Params&)>& skip = {});

}  // namespace kvbench
