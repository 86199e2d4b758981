// The tokens of a sequence that an answer needs, and the rows that ask for it.
#pragma once

#include <utility>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

struct Evidence {
  // First and last token, inclusive; ascending, without overlap.
  std::vector<std::pair<Index, Index>> spans;
  std::vector<Index> rows;  // ascending

  Index tokens() const {
    Index count = 0;
    for (const auto& [first, last] : spans) count += last - first + 1;
    return count;
  }
  bool operator==(const Evidence&) const = default;
};

}  // namespace kvbench
