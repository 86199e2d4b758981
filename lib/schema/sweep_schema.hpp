// The JSON Schema of a sweep file: `kvbench schema sweep`.
#pragma once

#include <string>
#include <vector>

#include "schema/parameter_schema.hpp"

namespace kvbench {

// A file that breaks it is refused; one that keeps it may still be, for what a schema cannot
// express: whether dumps, layers and heads exist, whether two entries describe the same cell, the
// size of a sweep, what an algorithm itself refuses.
Json sweep_schema(const std::vector<AlgorithmDescription>& algorithms);

// evaluate.rows, which a cell's key has too.
Json rows_schema();

// {"if": the member `algorithm` is one of `names`, "then": ..}.
Json where_algorithm_is(const std::vector<std::string>& names, Json then);

}  // namespace kvbench
