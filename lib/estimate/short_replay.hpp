// A replay on the first part of a stream, in proportion: what is timed in place of a long one.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "parameters/parameters.hpp"

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

// The parameters of a cell on such a part of the stream's tokens: numbers of tokens, and numbers
// that grow with the memory, are cut in proportion.
Params short_params(const std::vector<Parameter>& table, const Params& params, double part);

// The lengths that are tried, ascending: the stream's, halved until it is less than 256, and than
// four times the columns `d` of a key. Shorter ones have singular products of queries, whose
// eigenvectors take less time.
std::vector<Index> tried_lengths(Index tokens, Index d);

// A stream so short that any cell may be replayed on it, although its time is unknown.
inline constexpr Index kShort = 2048;

// Whether a replay of `tokens` tokens probably ends within `left` seconds, by the seconds that the
// last one and the one before it took, on half and a quarter of the tokens. The two shortest may
// always start. `before`: 0 if there is one alone.
bool may_start(double before, double last, double left);

// The time at full length, by those at shorter ones, ascending; 0 without any. It is a constant,
// one part proportional to the length and one to its square, none below 0, with the least sum of
// squared relative errors; the constant is 0 for fewer than four lengths of less than 0.05 s, and
// one length alone is taken for quadratic. A time at full length is taken as it is.
struct TimeAtLength {
  double part = 0.0;  // fraction of the full length
  double seconds = 0.0;
};
double time_at_full_length(const std::vector<TimeAtLength>& times);

}  // namespace kvbench
