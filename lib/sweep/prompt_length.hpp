// Where the prompt of a sequence ends.
#pragma once

#include <optional>
#include <string>

#include "numerics/matrix_view.hpp"
#include "parameters/parameters.hpp"
#include "system/error.hpp"

namespace kvbench {

// P, in tokens, if the sweep names none: the last min(256, max(1, floor(n/2))) of n tokens are
// decoded, or, if fewer rows have queries, those that have. `query_rows`: how many of the last
// rows have queries; with none there is nothing to go by and P is as if all had. 0 <= P < n.
Index default_prompt(Index tokens, Index query_rows);

// P of `tokens` tokens by replay.prompt_tokens of a checked sweep, `given`: a number, a fraction,
// or the word for `of_dump`, the dump's attribute. None, and an error that names `place`, where
// that is missing or leaves no token to decode.
std::optional<Index> prompt_length(const std::optional<Value>& given,
                                   const std::optional<Index>& of_dump, Index tokens,
                                   Index query_rows, const std::string& place, ErrorList& errors);

}  // namespace kvbench
