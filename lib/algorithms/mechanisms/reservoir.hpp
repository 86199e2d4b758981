// The random choices of SubGen's reservoirs, as exact jumps: one uniform number per replacement
// instead of one coin per token and slot, with the same law.
#pragma once

#include <cstdint>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

inline constexpr Index kNever = INT64_MAX;

// A slot that became token a stays so through token b with probability mu_a / mu_b (each later
// token j replaces it with probability w_j / mu_j). So it is replaced at the first b with
// mu_b > mu_a / U. `cumulative[b]` = mu after token first + b; returns kNever beyond its end.
// Tokens of weight 0 are never returned.
Index next_weighted(const std::vector<double>& cumulative, Index a, double u);

// A sample that was taken as the a-th member of its cluster stays so through the b-th with
// probability a / b. So it is replaced when the count reaches floor(a / U) + 1.
Index next_uniform(Index a, double u);

}  // namespace kvbench
