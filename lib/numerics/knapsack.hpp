// The knapsack with one choice per item, solved exactly.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "system/index.hpp"

namespace kvbench {

struct KnapsackChoice {
  Index size = 0;     // at least 0
  double loss = 0.0;  // finite
};

// The place of each item's choice, so that the sizes add up to at most `capacity` and no others
// have a smaller sum of losses; nothing where the smallest sizes do not fit. No item is without
// choices.
//
// Dynamic programming over the sums of sizes: partial sums that another one beats in size and loss
// are dropped. So are those whose bound is above a solution that is known. The bound is Lagrange's:
// each item left has at least its least loss + price size.
std::optional<std::vector<std::size_t>> least_loss(
    const std::vector<std::vector<KnapsackChoice>>& items, Index capacity);

}  // namespace kvbench
