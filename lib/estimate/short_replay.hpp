// A replay on the first part of a stream, in proportion: what is timed in place of a long one.
#pragma once

#include <vector>

#include "core/stream.hpp"

namespace kvbench {

struct ShortReplay {
  StreamShape shape;
  Index prompt = 0;
  std::vector<Index> rows;  // scored, ascending
};

// Prompt, stored queries and scored rows as parts of `tokens` of the stream's tokens; no row moves
// from the prompt to what is decoded. With all tokens it is the replay itself; otherwise without
// the pass that repeats the prompt.
ShortReplay short_replay(const StreamShape& shape, Index prompt, const std::vector<Index>& rows,
                         Index tokens);

// The lengths that are tried, ascending: the stream's, halved until it is less than 256.
std::vector<Index> tried_lengths(Index tokens);

// The time at full length, by those at two shorter ones: one part proportional to the length and
// one to its square, neither below 0. `part`: of the full length; 0 at the first length tried,
// which is then taken for quadratic.
struct TimeAtLength {
  double part = 0.0;
  double seconds = 0.0;
};
double time_at_full_length(const TimeAtLength& shorter, const TimeAtLength& longer);

}  // namespace kvbench
