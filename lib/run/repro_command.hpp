// The command that computes one record again: `repro` of results.json.
#pragma once

#include <string>
#include <vector>

#include "sweep/plan.hpp"

namespace kvbench {

// The way in which a run got its sweep.
struct SweepSource {
  std::string file = {};               // empty or "-": the run writes sweep.json into its folder
  std::vector<std::string> sets = {};  // "pointer=value" changes of the file

  bool has_file() const { return !file.empty() && file != "-"; }
};

// A command of the program; a call in Python for a method that the program does not know. `folder`
// is the run's output folder.
std::string repro_of(const SweepSource& source, const std::string& folder, const PlannedCell& cell);

// The same for a record of a whole layer: all of its cells.
std::string repro_of(const SweepSource& source, const std::string& folder, const Plan& plan,
                     const PlannedLayerRecord& layer);

}  // namespace kvbench
