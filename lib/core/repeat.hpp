// A pass in which a model repeats its prompt, part by part: each part is read once more, behind a
// request, over the cache of the whole prompt.
#pragma once

#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

struct RepeatPass {
  struct Part {
    Index first = 0;  // tokens [first, end) of the prompt are repeated
    Index end = 0;
    Index rows = 0;  // tokens that the model reads for it: the request, then the part itself

    bool operator==(const Part&) const = default;
  };
  // Each begins where the one before it ends; the last ends with the prompt.
  std::vector<Part> parts;

  Index first() const { return parts.front().first; }
  Index prompt() const { return parts.back().end; }
  Index rows() const {
    Index sum = 0;
    for (const Part& part : parts) sum += part.rows;
    return sum;
  }
  bool operator==(const RepeatPass&) const = default;
};

}  // namespace kvbench
