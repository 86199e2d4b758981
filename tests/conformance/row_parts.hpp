// Parts of the rows of the conformance table: values, numbers of tokens, which ones must be kept,
// what is stored besides.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "conformance/points.hpp"

namespace kvbench::test {

inline Value integer(Index value) { return Value{static_cast<std::int64_t>(value)}; }
inline Value word(const char* value) { return Value{std::string(value)}; }

using Count = std::function<Index(const StreamShape&, Index, Index)>;

inline Index visible(const StreamShape& shape, Index row) {
  return row + 1 - shape.first_visible(row);
}

inline Count rolling(Index budget) {
  return [budget](const StreamShape& shape, Index, Index row) {
    return std::min(visible(shape, row), budget);
  };
}

// The count of a method that keeps at most `budget` tokens of the prompt; decode tokens come on
// top.
inline Count compressed(Index budget) {
  return [budget](const StreamShape& shape, Index prompt, Index row) {
    const Index seen = std::min(prompt - std::min(shape.first_visible(prompt), prompt), budget);
    return std::min(visible(shape, row), seen + row + 1 - prompt);
  };
}

inline MustHold last(Index count) {
  return [count](const StreamShape& shape, Index, Index row) {
    std::vector<Index> out;
    for (Index j = std::max(shape.first_visible(row), row + 1 - count); j <= row; ++j) {
      out.push_back(j);
    }
    return out;
  };
}

// Sinks and the last `recent` tokens of the row.
inline MustHold sinks_and_last(Index sinks, Index recent) {
  return [sinks, recent](const StreamShape& shape, Index prompt, Index row) {
    std::vector<Index> out;
    for (Index j = shape.first_visible(row); j < std::min(sinks, row + 1); ++j) out.push_back(j);
    for (const Index j : last(recent)(shape, prompt, row)) out.push_back(j);
    return out;
  };
}

// Sinks, the last `recent` tokens of the prompt, and every decode token.
inline MustHold sinks_prompt_end_and_decoded(Index sinks, Index recent) {
  return [sinks, recent](const StreamShape& shape, Index prompt, Index row) {
    std::vector<Index> out;
    for (Index j = shape.first_visible(row); j <= row; ++j) {
      if (j < sinks || j >= prompt - std::min(recent, prompt)) out.push_back(j);
    }
    return out;
  };
}

inline Conformance budgeted(const std::string& id, const Given& rest) {
  Conformance row;
  row.id = id;
  row.exact_points = [rest](Index tokens) {
    Given equal{{"budget", integer(tokens)}};
    Given more{{"budget", integer(3 * tokens)}};
    equal.insert(equal.end(), rest.begin(), rest.end());
    more.insert(more.end(), rest.begin(), rest.end());
    return std::vector<Given>{equal, more};
  };
  return row;
}

// Tokens kept, each with the given count of numbers per query head: scores, noise.
inline Bookkeeping per_token_and_head(Index numbers) {
  return [numbers](const Sketch& sketch, const Params&, int heads_per_kv) {
    Index tokens = 0;
    for (const SketchRow& row : sketch.rows()) tokens += row.token >= 0 ? row.copies : 0;
    return tokens * heads_per_kv * numbers;
  };
}

// Rows that say they store a weight, whatever it is.
inline Index weighted_rows(const Sketch& sketch) {
  return std::count_if(sketch.rows().begin(), sketch.rows().end(), [](const SketchRow& row) {
    return row.token >= 0 && row.weight_numbers > 0;
  });
}

// Weights of the two sums are stored though they may be 0 or 1.
inline Index every_weight(const Sketch& sketch, const Params&, int) {
  Index numbers = 0;
  for (const SketchRow& row : sketch.rows()) numbers += row.token >= 0 ? row.weight_numbers : 0;
  return numbers;
}

inline bool has_word(const Params& params, const char* name, const char* word) {
  return params.at(name) == Value{std::string(word)};
}

}  // namespace kvbench::test
