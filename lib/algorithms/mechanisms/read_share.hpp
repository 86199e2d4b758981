// Whether a query-aware method selects the tokens of a row per query head or for all query heads of
// a KV head.
#pragma once

#include <cstdint>
#include <vector>

#include "parameters/parameter_table.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

enum class ReadShare { kHead, kGroup };

// SketchRow::head of rows that all query heads read.
inline constexpr std::int16_t kEveryHead = -1;

template <class P>
Field<P> read_share_field(ReadShare P::* member) {
  return field("share", member, {{"head", ReadShare::kHead}, {"group", ReadShare::kGroup}},
               "whether query heads choose tokens separately, or those of a KV head together, by "
               "the sum of their scores");
}

// SketchRow::head of rows that query head `g` alone reads. A group of one has none.
inline std::int16_t reading_head(int g, int heads_per_kv) {
  return heads_per_kv > 1 ? static_cast<std::int16_t>(g) : kEveryHead;
}

// Rows of a sketch by which `head` reads these tokens exactly.
inline void read_exactly(const std::vector<Index>& tokens, std::int16_t head, Sketch& sketch) {
  for (const Index token : tokens) {
    SketchRow row = SketchRow::exact(token);
    row.head = head;
    sketch.add(row);
  }
}

// Scores `count` things by `add(g, scores)`, which adds those of query head g, and calls
// `read(scores, head)`: once per query head, or once with the sum over the group.
template <class Add, class Read>
void read_by_scores(ReadShare share, int heads_per_kv, std::size_t count, const Add& add,
                    const Read& read) {
  std::vector<double> scores(count, 0.0);
  for (int g = 0; g < heads_per_kv; ++g) {
    add(g, scores);
    if (share == ReadShare::kGroup) continue;
    read(scores, reading_head(g, heads_per_kv));
    scores.assign(count, 0.0);
  }
  if (share == ReadShare::kGroup) read(scores, kEveryHead);
}

}  // namespace kvbench
