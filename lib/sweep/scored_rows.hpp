// Which decode rows of a sequence are scored.
#pragma once

#include <string>
#include <vector>

#include "core/stream.hpp"
#include "json/json.hpp"
#include "json/pointer.hpp"

namespace kvbench {

// `rows` is evaluate.rows of a checked sweep: "all" = [P, n); {"last": m} = the last m of these,
// cut to all; {"every": m} = P, P + m, ..; a list = absolute rows, each in [P, n) or an error that
// names `sequence`. Where every row sees every token, all rows are meant in place of [P, n). Rows
// without stored query are left out. Ascending.
std::vector<Index> scored_rows(const nlohmann::json& rows, const StreamShape& shape, Index prompt,
                               const std::string& sequence, ErrorList& errors);

}  // namespace kvbench
