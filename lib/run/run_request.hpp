// The request of a run: a sweep, the device, and the folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/repro_command.hpp"
#include "run/run_device.hpp"
#include "sweep/read_sweep.hpp"

namespace kvbench {

struct RunRequest {
  SweepConfig sweep;                   // as read with ErrorPolicy::kKeep
  SweepSource source;                  // source of the sweep, for the `repro` of records
  RunDevice& device;                   // leaves itself for the CPU where the dumps do not suit it
  std::string out = {};                // folder; empty: results/<name of the sweep>
  std::vector<std::string> only = {};  // globs of cells; empty: all
  std::string shard = {};              // "2/3"; empty: all
  std::uint64_t memory_limit = 0;      // bytes; 0: what the process may use
  bool fresh = false;                  // discard the cells that the folder has
  bool add = false;                    // also into the folder of another sweep
  bool anonymous = false;              // leave host and folders of paths out of results.json
  bool retry_failed = false;           // compute failed cells again
  bool no_lock = false;                // go on where the folder cannot be locked
  std::vector<std::string> argv = {};  // the call, for the provenance
};

}  // namespace kvbench
