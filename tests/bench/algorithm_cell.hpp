// Cells of one algorithm, as benchmarks replay them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "replay/replay.hpp"

namespace kvbench::bench {

// Seeds besides the first that an average over further seeds is taken of.
inline constexpr std::uint32_t kFurtherSeeds = 9;

using Given = std::map<std::string, Value>;

// `given`, and defaults for the rest.
Params params_of(const AlgorithmDescription& algorithm, const Given& given);

// Seeds first, first + 1, ..
std::vector<ReplayCell> cells_of(const AlgorithmDescription& algorithm, const Params& params,
                                 std::uint32_t first, std::uint32_t seeds);

// Replays all cells and returns the result of the last in the list. A failed one throws CellError.
CellResult last_cell(const Stream& stream, const ReplaySetting& setting,
                     const std::vector<ReplayCell>& cells, const Kernels& kernels = cpu_kernels());

}  // namespace kvbench::bench
