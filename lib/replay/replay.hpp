// Drives one group: replays every cell of a stream against the exact reference, sharing the
// reference and whatever does not depend on a cell's own parameters.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/row_block.hpp"
#include "replay/cell_result.hpp"
#include "replay/replay_cell.hpp"

namespace kvbench {

struct ReplayTiming {
  double reference_seconds = 0.0;
  double logits_seconds = 0.0;   // time of the rows' logits, which all cells read
  double shared_seconds = 0.0;   // work that several cells share
  double metrics_seconds = 0.0;  // trivial answers
};

// Where the numbers of a replay's blocks are, to be used again by a replay whose blocks are as
// large: the system clears every page that it hands out.
struct ReplayRoom {
  BlockRoom block;
  LogitBlock decoded;  // logits of decoded keys
};

// Calls `done(cell index, result)` for each cell as it finishes, one call at a time, in no
// particular order. A cell that throws CellError, or runs out of memory, is reported as failed; the
// others go on. A DeviceError, and whatever `done` throws, end the replay as they are; any other
// exception of a cell is a bug and ends it with a BugError. Throws Stopped (system/stop.hpp) soon
// after a stop was requested. Cells not reported by then are not done.
ReplayTiming replay(const Stream& stream, const ReplaySetting& setting,
                    const std::vector<ReplayCell>& cells, const Kernels& kernels,
                    const std::function<void(std::size_t, CellResult&&)>& done, ReplayRoom& room);
// The same in room of its own.
ReplayTiming replay(const Stream& stream, const ReplaySetting& setting,
                    const std::vector<ReplayCell>& cells, const Kernels& kernels,
                    const std::function<void(std::size_t, CellResult&&)>& done);

}  // namespace kvbench
