// One cell through the real replay.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/replay.hpp"

namespace kvbench::test {

// All decode rows [prompt, n); all rows, where each sees every token.
std::vector<Index> decode_rows(const Stream& stream, Index prompt);

// Replays one cell; throws std::runtime_error with its reason where it failed. `rows` empty: all
// decode rows.
CellResult replay_one(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
                      const Params& params, std::uint32_t seed = 0, std::vector<Index> rows = {});

}  // namespace kvbench::test
