#include "sweep/scored_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvbench {
namespace {

// Rows that may be scored, [first, last).
struct Range {
  Index first;
  Index last;
};

// Why a row may not, of a list of rows.
std::string wrong_row(Index row, Range range, bool causal, bool of_prompt,
                      const std::string& sequence) {
  if (!causal) {
    return fmt::format("must be a row, from 0 to {}, of {}, got {}", range.last - 1, sequence, row);
  }
  if (!of_prompt) {
    return fmt::format("must be a decode row, from {} (the end of the prompt) to {}, of {}, got {}",
                       range.first, range.last - 1, sequence, row);
  }
  if (range.last == 0) {
    return fmt::format("must be a row of the prompt, but {} is replayed without one, got {}",
                       sequence, row);
  }
  return fmt::format("must be a row of the prompt, from 0 to {}, of {}, got {}", range.last - 1,
                     sequence, row);
}

}  // namespace

bool means_prompt_rows(const nlohmann::json& rows) {
  return rows.is_object() && rows.contains("prompt");
}

std::vector<Index> scored_rows(const nlohmann::json& rows, const StreamShape& shape, Index prompt,
                               const std::string& sequence, ErrorList& errors) {
  const bool of_prompt = means_prompt_rows(rows);
  const nlohmann::json& chosen = of_prompt ? rows["prompt"] : rows;
  Range range{0, shape.tokens};
  if (shape.causal) (of_prompt ? range.last : range.first) = prompt;
  std::vector<Index> wanted;
  if (chosen.is_array()) {
    const std::string place = of_prompt ? "/evaluate/rows/prompt" : "/evaluate/rows";
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Index row = chosen[i].get<Index>();
      if (row >= range.first && row < range.last) {
        wanted.push_back(row);
        continue;
      }
      errors.add(child(place, i), wrong_row(row, range, shape.causal, of_prompt, sequence));
    }
    std::sort(wanted.begin(), wanted.end());
  } else {
    const auto count = [&](const char* form, Index otherwise) {
      return chosen.is_object() && chosen.contains(form) ? chosen[form].get<Index>() : otherwise;
    };
    const Index last = count("last", shape.tokens);
    const Index every = count("every", 1);
    const Index end = range.last;
    // Written so that no count, however large, overflows.
    const Index first = last < end - range.first ? end - last : range.first;
    for (Index row = first; row < end; row = every < end - row ? row + every : end) {
      wanted.push_back(row);
    }
  }
  std::erase_if(wanted, [&](Index row) { return row < shape.first_query; });
  return wanted;
}

}  // namespace kvbench
