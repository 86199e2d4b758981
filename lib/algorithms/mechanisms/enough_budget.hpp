// Refusals of a budget that is smaller than the tokens that are always kept, where the recent ones
// among them follow from the budget.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "algorithms/mechanisms/budget.hpp"

namespace kvbench {

// Last tokens that are always kept, by the budget.
using RecentOf = std::function<Index(Index budget)>;

// "budget of B tokens is smaller than sinks + recent", and values that work. A budget of `whole`
// tokens keeps every token.
std::string smaller_budget(Index budget, Index sinks, const RecentOf& recent_of, Index whole,
                           const std::string& recent_name = "recent");

// As cannot_compress of compress_once.hpp.
std::optional<std::string> cannot_compress(const TokenCount& budget, const TokenCount& sinks,
                                           const RecentOf& recent_of, const StreamShape& shape,
                                           Index prompt);

}  // namespace kvbench
