// Cache and calibration files that the parameters of a sweep name.
#pragma once

#include <optional>
#include <string>

#include "algorithms/algorithm.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Puts them into the plan, each once. Throws InputError for those that were not opened, and for two
// of the same content.
void take_files(const SweepConfig& config, Plan& plan, ErrorList& errors);

// The parameters that the numbers of a calibration depend on, as a JSON object.
std::string calibrated_params(const AlgorithmDescription& algorithm, const Params& params);

// Why a file that the parameters name is not of the group's dump or layer.
std::optional<Misfit> misfit_of_files(const PlannedDump& dump, const WorkGroup& group,
                                      const AlgorithmDescription& algorithm, const Params& params);

}  // namespace kvbench
