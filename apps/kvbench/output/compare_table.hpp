// Output of `kvbench compare`.
#pragma once

#include <string>

#include "compare/compare.hpp"

namespace kvbench {

// The compared quantity, in the words of the table.
struct ComparedThings {
  const char* name;  // plural of what is paired
  const char* unit;
};
inline constexpr ComparedThings kComparedCells = {"cells", "sequence, layer, KV head"};
inline constexpr ComparedThings kComparedLayers = {"records of whole layers", "sequence, layer"};

// A line per setting with the first metric of `rules` and memory, then what is worse, then the
// verdict.
std::string compare_table(const Comparison& comparison, const CompareRules& rules,
                          std::size_t columns, const ComparedThings& things = kComparedCells);

}  // namespace kvbench
