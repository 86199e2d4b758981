// Logits of rows, some at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "algorithms/shared_work.hpp"

namespace kvbench {

inline constexpr Index kPromptNumbersAtOnce = Index{1} << 22;  // number of logits

// Bytes of a block of `rows` rows of a prompt, and of the keys as a kernel lays them out.
inline double prompt_rows_bytes(const StreamShape& shape, Index prompt, Index rows) {
  const Index of_row = shape.heads_per_kv * prompt;
  const Index numbers = std::min(rows * of_row, std::max(kPromptNumbersAtOnce, of_row));
  return 16.0 * static_cast<double>(numbers) + 8.0 * static_cast<double>(shape.tokens * shape.d);
}

// Calls body(block, r) for rows [first, last) in order, all of them with stored queries: row
// block.rows[r], logits and exponentials of all its query heads.
template <class Body>
void for_each_row(const Stream& stream, const Kernels& kernels, Index first, Index last,
                  const Body& body) {
  const Index of_row = stream.shape.heads_per_kv * std::max<Index>(1, last);
  const Index at_once = std::max<Index>(1, kPromptNumbersAtOnce / of_row);
  LogitBlock block;
  for (; first < last; first += at_once) {
    std::vector<Index> rows;
    for (Index i = first; i < std::min(first + at_once, last); ++i) rows.push_back(i);
    kernels.logits(stream, std::move(rows), block);
    for (std::size_t r = 0; r < block.rows.size(); ++r) body(block, r);
  }
}

// The same for prompt rows [first, P).
template <class Body>
void for_each_prompt_row(const SharedContext& context, Index first, const Body& body) {
  for_each_row(context.stream, context.kernels, first, context.prompt, body);
}

}  // namespace kvbench
