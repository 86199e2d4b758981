// Where held tokens stand when they are attended to.
#pragma once

#include <optional>
#include <string>

#include "algorithms/budget.hpp"

namespace kvbench {

inline Parameter positions_parameter() {
  return choice_parameter("positions", {"original", "cache"},
                          "where held tokens stand: as in the sequence, or numbered in the cache "
                          "(keys are turned; needs RoPE data)");
}

inline bool at_cache_positions(const Params& params) { return params.word("positions") == "cache"; }

inline std::optional<std::string> no_rope(const Params& params, const StreamShape& shape) {
  if (!at_cache_positions(params) || shape.rope != nullptr) return std::nullopt;
  return "positions: cache turns keys, and the dump holds no RoPE data for this layer";
}

}  // namespace kvbench
