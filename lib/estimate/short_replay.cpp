#include "estimate/short_replay.hpp"

#include <algorithm>

namespace kvbench {

ShortReplay short_replay(const StreamShape& shape, Index prompt, const std::vector<Index>& rows,
                         Index tokens) {
  ShortReplay out{.shape = shape, .prompt = prompt, .rows = rows};
  if (tokens == shape.tokens) return out;
  const auto moved = [&](Index position) {
    return static_cast<Index>(static_cast<double>(position) * static_cast<double>(tokens) /
                              static_cast<double>(shape.tokens));
  };
  out.shape.tokens = tokens;
  out.shape.repeat = nullptr;
  out.shape.first_query = moved(shape.first_query);
  out.prompt = prompt == shape.tokens ? tokens : std::min(moved(prompt), tokens - 1);
  out.rows.clear();
  for (const Index row : rows) {
    const Index at = row < prompt ? std::min(moved(row), out.prompt - 1)
                                  : std::clamp(moved(row), out.prompt, tokens - 1);
    if (at >= out.shape.first_query && (out.rows.empty() || at > out.rows.back())) {
      out.rows.push_back(at);
    }
  }
  return out;
}

std::vector<Index> tried_lengths(Index tokens) {
  constexpr Index kTooLong = 256;  // for the first
  std::vector<Index> lengths = {tokens};
  while (lengths.front() >= kTooLong) lengths.insert(lengths.begin(), lengths.front() / 2);
  return lengths;
}

double time_at_full_length(const TimeAtLength& shorter, const TimeAtLength& longer) {
  const double per_part = longer.seconds / longer.part;
  const double most = per_part / longer.part;
  if (shorter.part == 0.0) return most;
  const double slope = (per_part - shorter.seconds / shorter.part) / (longer.part - shorter.part);
  const double square = std::clamp(slope, 0.0, most);
  return square + (per_part - square * longer.part);
}

}  // namespace kvbench
