// {"memory": F} of a cell whose cache a codec writes, and the memory of cells before they run.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "algorithms/algorithm.hpp"
#include "storage/storage.hpp"

namespace kvbench {

// As solve_memory (algorithms/memory_budget.hpp), with what vectors take in this storage; null:
// float.
std::variant<Params, std::string> solve_stored_memory(const AlgorithmDescription& algorithm,
                                                      const Params& params, const Storage* storage,
                                                      const StreamShape& shape, Index prompt,
                                                      int element_bytes);

// A cell's memory.fraction, if shape, prompt and parameters decide it; `params` are solved.
std::optional<double> known_memory(const AlgorithmDescription& algorithm, const Params& params,
                                   const Storage* storage, const StreamShape& shape, Index prompt,
                                   int element_bytes);

}  // namespace kvbench
