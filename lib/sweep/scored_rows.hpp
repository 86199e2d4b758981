// Which rows of a sequence are scored.
#pragma once

#include <string>
#include <vector>

#include "core/stream.hpp"
#include "json/json.hpp"
#include "json/pointer.hpp"

namespace kvbench {

// Whether `rows`, evaluate.rows of a checked sweep, means rows of the prompt.
bool means_prompt_rows(const nlohmann::json& rows);

// `rows` is evaluate.rows of a checked sweep: "all" = the decode rows [P, n); {"last": m} = the
// last m of these, cut to all; {"every": m} = P, P + m, ..; a list = absolute rows, each in [P, n)
// or an error that names `sequence`; {"prompt": one of these} = the same of the prompt's rows
// [0, P). Where every row sees every token, all rows are meant in place of either. Rows without
// stored query are left out. Ascending.
std::vector<Index> scored_rows(const nlohmann::json& rows, const StreamShape& shape, Index prompt,
                               const std::string& sequence, ErrorList& errors);

}  // namespace kvbench
