// Tokens that a cache names twice for one query head at one time.
#pragma once

#include <cstddef>
#include <optional>

#include "core/kept_cache.hpp"

namespace kvbench {

// Two rows of one token that the same query head reads at the same decode row.
struct RepeatedToken {
  std::size_t row = 0;
  std::size_t earlier = 0;
};

// The first such pair; none where rows have both keys and values of their own, whose tokens are
// names alone.
std::optional<RepeatedToken> repeated_token(const KeptRows& kept);

}  // namespace kvbench
