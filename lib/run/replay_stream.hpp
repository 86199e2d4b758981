// One cell on a stream that is in memory: what a run would record of it, its answers and the tokens
// that it kept.
#pragma once

#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "core/stream.hpp"
#include "json/json.hpp"
#include "kernels/kernels.hpp"

namespace kvbench {

struct StreamCell {
  const Stream& stream;
  std::string fingerprint;  // text in place of the dump in the cell's key
  // A sweep without name, dumps and selection, of one cell: algorithms, replay, evaluate, seeds,
  // memory. Relative to nothing.
  nlohmann::json sweep;
  std::string place;  // begins messages
  std::string repro;  // command of the record
};

// A token while it is kept: at the answers of decode rows [begin, end).
struct KeptToken {
  std::int32_t token = 0;
  Index begin = 0;
  Index end = 0;
};

struct StreamCellResult {
  Json record;                  // as in results.json; its status may be "failed" or "skipped"
  std::vector<Index> rows;      // R scored rows, ascending
  std::vector<double> outputs;  // [G, R, dv]; empty unless the status is "ok"
  std::vector<KeptToken> kept;  // ordered by end, then token; of a token once per stay
};

// Values are those of a run over a dump with this stream, bit by bit. An algorithm that decides for
// the whole model decides from this stream alone. Throws InputError for a sweep that is wrong or
// has not exactly one cell, Stopped (system/stop.hpp) where a stop was requested.
StreamCellResult replay_stream(
    const StreamCell& cell, const Kernels& kernels,
    const std::vector<AlgorithmDescription>& algorithms = all_algorithms());

// XXH3-128 of everything that a stream's values depend on, its place in the model included.
std::string stream_fingerprint(const Stream& stream);

}  // namespace kvbench
