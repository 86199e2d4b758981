// A part of a replay's rows that stands for all of them.
#pragma once

#include <vector>

#include "core/stream.hpp"

namespace kvbench {

struct SampleRows {
  std::vector<Index> rows;  // scored, ascending
  Index tokens = 0;         // of the stream, the whole prompt among them
};

// Pairs of a row whose logits are computed, scored or not, and a token that it sees.
double visited_pairs(const StreamShape& shape, Index prompt, const std::vector<Index>& rows,
                     bool every_row);

// All of `rows` where that takes at most `pairs` visited pairs. Otherwise of the prompt's rows an
// even choice, and as many times fewer decode rows after the prompt, of which as large a part is
// scored, at the same places between the first and the last; at least one row.
SampleRows sample_rows(const StreamShape& shape, Index prompt, const std::vector<Index>& rows,
                       bool every_row, double pairs);

}  // namespace kvbench
