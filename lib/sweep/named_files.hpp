// Cache and calibration files that the parameters of a sweep name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "storage/storage.hpp"
#include "sweep/parameter_columns.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Makes paths and globs of files absolute paths, each once; relative ones start at `folder`. None:
// they are as they were found once. False after an error.
bool find_files(std::vector<ParameterColumn>& columns, const std::optional<std::string>& folder,
                ErrorList& errors);

// Puts them into the plan, each once. Throws InputError for those that were not opened, and for two
// of the same content.
void take_files(const SweepConfig& config, Plan& plan, ErrorList& errors);

// A method or a codec that takes numbers of other texts; it must live as long.
struct Calibrated {
  const char* kind;
  const std::string& id;
  const std::vector<Parameter>& parameters;
  const std::vector<std::string>& calibration_params;
};
inline Calibrated calibrated_by(const AlgorithmDescription& of) {
  return {"method", of.id, of.parameters, of.calibration_params};
}
inline Calibrated calibrated_by(const CodecDescription& of) {
  return {"codec", of.id, of.parameters, of.calibration_params};
}

// The parameters that the numbers of a calibration depend on, as a JSON object.
std::string calibrated_params(const Calibrated& of, const Params& params);

// Why a file that the parameters name is not of the group's dump or layer.
std::optional<Misfit> misfit_of_files(const PlannedDump& dump, const WorkGroup& group,
                                      const AlgorithmDescription& algorithm, const Params& params);
// The same of the parameters of a layer's codecs.
struct StorageMisfit : Misfit {
  std::string path;
};
std::optional<StorageMisfit> misfit_of_files(const PlannedDump& dump, const WorkGroup& group,
                                             const Storage& storage);

}  // namespace kvbench
