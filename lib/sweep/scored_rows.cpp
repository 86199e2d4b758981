#include "sweep/scored_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvbench {

std::vector<Index> scored_rows(const nlohmann::json& rows, const StreamShape& shape, Index prompt,
                               const std::string& sequence, ErrorList& errors) {
  const Index n = shape.tokens;
  const Index begin = shape.causal ? prompt : 0;
  std::vector<Index> wanted;
  if (rows.is_array()) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Index row = rows[i].get<Index>();
      if (row >= begin && row < n) {
        wanted.push_back(row);
        continue;
      }
      if (!shape.causal) {
        errors.add(child("/evaluate/rows", i),
                   fmt::format("must be a row, from 0 to {}, of {}, is {}", n - 1, sequence, row));
        continue;
      }
      errors.add(child("/evaluate/rows", i),
                 fmt::format("must be a decode row, from {} (the end of the prompt) to {}, of {}, "
                             "is {}",
                             prompt, n - 1, sequence, row));
    }
    std::sort(wanted.begin(), wanted.end());
  } else {
    const Index last = rows.is_object() && rows.contains("last") ? rows["last"].get<Index>() : n;
    const Index every = rows.is_object() && rows.contains("every") ? rows["every"].get<Index>() : 1;
    // Written so that no count, however large, overflows.
    const Index first = last < n - begin ? n - last : begin;
    for (Index row = first; row < n; row = every < n - row ? row + every : n) wanted.push_back(row);
  }
  std::erase_if(wanted, [&](Index row) { return row < shape.first_query; });
  return wanted;
}

}  // namespace kvbench
